"""Tables with categories, gaps, dates and texts: what columns become, by which rows, and under which names."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import noiseproof as nf
from noiseproof.data import LabeledData
from noiseproof.data.columns import read_column
from noiseproof.data.encoders import MOST_VALUES
from noiseproof.data.input_form import InputForm
from noiseproof.data.readers import texts_of
from noiseproof.data.readers.table_files import text_columns
from noiseproof.data.table import Table, TableEncoder
from noiseproof.errors import InputError
from noiseproof.runs import checkpoint


def frame(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """Every kind of column, with gaps in each."""
    rng = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "sang", "of", "old", "trees", "in", "spring"]
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "edu": rng.choice(["school", "college", "none"], n),
            "member": rng.random(n) < 0.5,
            "joined": pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "zip": rng.integers(0, 4, n),
            "note": [" ".join(rng.choice(words, 6)) for _ in range(n)],
        }
    )
    for name in ("age", "edu", "joined", "note"):
        table[name] = table[name].mask(rng.random(n) < 0.1)
    return table


def labels_of(table: pd.DataFrame) -> np.ndarray:
    return np.where((table["edu"] == "school") | (table["age"] > 45), "yes", "no")


def test_kinds_by_what_columns_look_like() -> None:
    data = LabeledData(frame(), labels_of(frame()))
    kinds = data.inputs.encoder.kinds  # type: ignore[union-attr]
    assert [*kinds.values()] == ["number", "category", "category", "date", "number", "text"]
    assert data.feature_names == tuple(frame())
    asked = LabeledData(frame(), labels_of(frame()), kinds={"zip": "category", "note": "category"})
    assert asked.inputs.encoder.kinds["zip"] == asked.inputs.encoder.kinds["note"] == "category"  # type: ignore[union-attr]


def test_complete_numbers_stay_what_they_were() -> None:
    table = frame()[["zip", "member"]]
    assert isinstance(LabeledData(table, labels_of(frame())).inputs, torch.Tensor)


def test_every_make_of_table_gives_the_same_features() -> None:
    given, kinds = frame(), {"zip": "category"}
    y = labels_of(given)
    wanted = LabeledData(given, y, kinds=kinds).take(torch.arange(120))
    assert wanted.isfinite().all()
    polars, arrow = pl.from_pandas(given), pa.Table.from_pandas(given)
    categorical = given.assign(edu=given["edu"].astype("category"), zip=given["zip"].astype("Int64"))
    lists = {name: arrow.column(name).to_pylist() for name in arrow.column_names}
    for other in (polars, arrow, categorical, lists, given[given.columns[::-1]]):
        data = LabeledData(other, y, kinds=kinds, feature_names=list(given))
        torch.testing.assert_close(data.take(torch.arange(120)), wanted)


def test_features_are_those_of_scikit_learn() -> None:
    """The slow, obvious twin: ColumnTransformer of imputer, indicator, scaler and one-hot."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = frame()[["age", "edu"]]
    number = make_union(make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), MissingIndicator())
    twin = ColumnTransformer([("n", number, ["age"]), ("c", OneHotEncoder(sparse_output=False), ["edu"])])
    wanted = twin.fit_transform(table.astype({"edu": object}).where(table.notna(), np.nan))
    np.testing.assert_allclose(Table.read(table).take(torch.arange(120)).numpy(), wanted, atol=1e-5)


def test_encoder_is_fitted_on_training_rows_only() -> None:
    table = frame()
    table.loc[100:, "age"] += 1000
    table.loc[100:, "edu"] = "late"
    data = LabeledData(table, labels_of(table))
    train = data.subset(range(100))
    age, edu = train.inputs.encoder.parts[:2]  # type: ignore[union-attr]
    assert age.median < 100
    assert edu.values == ("college", "none", "school")
    rest = data.subset(range(100, 120)).encoded_by(train.inputs.encoder)  # type: ignore[union-attr]
    assert rest.take(torch.arange(20))[:, 0].median() > 50  # on the scale of the training rows
    assert rest.subset([3]).take(torch.tensor([0])).equal(rest.take(torch.tensor([3])))  # which a subset keeps


def test_rare_values_share_none_and_only_the_frequent_have_features() -> None:
    values = ["once", *(f"v{i}" for i in range(100) for _ in range(3)), *["often"] * 9]
    [part] = Table.read({"c": values}).encoder.parts
    assert len(part.values) == MOST_VALUES
    assert "often" in part.values
    assert "once" not in part.values
    assert part.others
    assert not part.unseen(read_column("c", ["new"]))


def test_an_unseen_value_is_told_once_in_a_sentence() -> None:
    train = LabeledData(frame(), labels_of(frame()))
    form, asked = InputForm.of(train), frame().assign(edu="kindergarten")
    with pytest.warns(UserWarning, match=r"^column 'edu' has 'kindergarten', in 120 rows, which the training set"):
        features = form.raw(asked)
    at = 2  # after age and whether it is missing
    assert not features.take(torch.arange(120))[:, at : at + 3].any()  # type: ignore[union-attr]


@given(st.lists(st.one_of(st.none(), st.floats(-1e30, 1e30)), min_size=2, max_size=30))
def test_numbers_are_finite_whatever_is_missing(values: list[float | None]) -> None:
    column = read_column("x", values, "number")
    part = TableEncoder([nf.data.encoders.Number.fit("x", column)])
    features = part.encode({"x": column})
    assert features.shape == (len(values), part.width)
    assert features.isfinite().all()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], "number"),
        ([Decimal("1.5"), Decimal(2)], "number"),
        (["01", "02", "01"], "category"),
        (["0", "1", "2", "3+"], "category"),
        ([True, None, False], "category"),
        ([datetime.date(2024, 1, 2), None], "date"),
        (["2024-01-02", "2024-02-03 12:30:00", None], "date"),
        ([datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)], "date"),
        (["we sat in the sun", "they sang all night", "it rained for a week"], "text"),
        ([None, None], "number"),
        (["", "", None], "category"),
    ],
)
def test_kind_of_one_column(values: list[Any], kind: str) -> None:
    assert read_column("x", values).kind == kind


def test_codes_are_the_same_texts_whatever_their_type() -> None:
    for values in (
        [1, 2, 10],
        [1.0, 2.0, 10.0],
        ["1", "2", "10"],
        np.array([1, 2, 10], np.uint8),
        torch.tensor([1, 2, 10]),
    ):
        assert read_column("zip", values, "category").levels == ("1", "2", "10")


def test_dates_know_year_week_and_hour() -> None:
    stamps = pd.to_datetime(["2024-01-01 06:00", "2024-01-08 06:00", "2025-01-01 18:00", None])
    [part] = Table.read({"t": stamps}).encoder.parts
    assert part.periods == ("year", "week", "day")
    features = part.encode(read_column("t", stamps))
    assert features.shape == (4, 8)
    np.testing.assert_allclose(features[0, 4:8], features[1, 4:8], atol=1e-6)  # the same weekday and hour
    assert features[3, 1] == 1  # missing
    assert not features[3, 2:].any()


def test_a_date_that_stands_for_never() -> None:
    days = read_column("until", ["9999-12-31", None, "0001-01-01", "2024-12-31"], "date").values
    assert days[[0, 2, 3]].tolist() == [2932896, -719162, 20088]
    assert np.isnan(days[1])


def test_a_series_of_texts_is_one() -> None:
    texts = ["the cat sat", "a mat of old", "sang in spring", "old trees sang"]
    for series in (pd.Series(texts, index=[7, 3, 1, 0]), pl.Series(texts), np.array(texts)):
        assert (
            LabeledData(series, [0, 1, 0, 1])
            .take(torch.arange(4))
            .equal(LabeledData(texts, [0, 1, 0, 1]).take(torch.arange(4)))
        )


WRONG: dict[str, tuple[Any, str]] = {
    "a column of lists": (pa.table({"a": [[1], [2]]}), r"column 'a' is of type list<.*>; give it as numbers"),
    "mixed": ({"a": [1, "x", object()]}, "column 'a' cannot be read .*; make its values of one kind"),
    "infinite": ({"a": [1.0, None, float("inf")]}, "column 'a' must be finite, got inf at row 2"),
    "lengths": ({"a": ["x", "y"], "b": [1]}, r"the columns differ in length \(2, 1\)"),
    "nothing": ({"a": ["x", "y"], "b": [None, None]}, "the columns a, b hold nothing to learn from"),
    "empty": ({"a": []}, "the columns are empty|inputs is empty"),
    "text among numbers": ({"a": [*map(str, range(30)), "x"]}, r"column 'a' has the text 'x' at row 30 among numbers"),
    "two of one name": ({"a": [1, 2], 1: [1, 2], "1": [3, 4]}, "the table has two columns named '1'; rename one"),
    "no date": ({"a": ["2024-01-01", "2024-01-02", "soon"]}, "column 'a' must be dates, got 'soon' at row 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_columns(name: str) -> None:
    columns, words = WRONG[name]
    n = len(columns["a"])
    with pytest.raises(InputError, match=words) as error:
        _ = LabeledData(columns, np.arange(n) % 2).input_shape
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"agee": "number"}, "unknown column in kinds: 'agee'; did you mean 'age'"),
        ({"age": "numbr"}, "unknown kind of column 'age': 'numbr'; did you mean 'number'"),
        ("age", "kinds must be a dict"),
        ({"edu": "number"}, "column 'edu' must be numbers, got the text '(school|college|none)' at row"),
        ({"edu": "date"}, "column 'edu' must be dates, got '(school|college|none)' at row"),
        ({"age": "text"}, "column 'age' must be text, got double"),
    ],
)
def test_bad_kinds(kinds: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        LabeledData(frame(), labels_of(frame()), kinds=kinds)
    with pytest.raises(InputError, match="kinds are those of a table's columns"):
        LabeledData(np.eye(3), [0, 1, 1], kinds={"a": "number"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nf.FitResult]:
    out = tmp_path_factory.mktemp("runs") / "table"
    data = LabeledData(frame(), labels_of(frame()), kinds={"zip": "category"})
    train, test = data.split(0.25)
    return out, nf.fit("mlp", train, "elr", epochs=3, val=0.2, test=test, out=out)


def test_a_loaded_model_takes_data_frames(trained: tuple[Path, nf.FitResult]) -> None:
    out, result = trained
    model, given = nf.load_model(out), frame(20, seed=1)
    wanted = result.predict_proba(given)
    shuffled = given[given.columns[::-1]].assign(more=1)
    for other in (
        given,
        shuffled,
        pl.from_pandas(given),
        pa.Table.from_pandas(given),
        LabeledData(given, labels_of(given)),
    ):
        np.testing.assert_array_equal(model.predict_proba(other), wanted)
    assert model.predict_proba(given.iloc[:0]).shape == (0, 2)
    np.testing.assert_allclose(model.predict_proba(given.iloc[3:4]), wanted[3:4], atol=1e-6)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda t: t.drop(columns="edu"), "the feature 'edu' is missing; the columns are age, member"),
        (lambda t: t.to_numpy(), "inputs must be a table with the columns age, edu, .*, got ndarray"),
        (lambda t: t.assign(age="old"), "column 'age' must be numbers, got the text 'old' at row 0"),
        (lambda t: t.assign(joined="soon"), "column 'joined' must be dates, got 'soon' at row 0"),
        (lambda t: t.assign(note=5), "column 'note' must be text, got int64"),
        (lambda t: LabeledData(np.zeros((4, 6)), [0, 1, 0, 1]), "the data does not match the training set: it has no"),
    ],
)
def test_bad_questions(trained: tuple[Path, nf.FitResult], ask: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nf.load_model(trained[0]).predict_proba(ask(frame(20)))


def test_numbers_in_training_must_be_numbers_again() -> None:
    data = LabeledData(frame()[["zip"]], labels_of(frame()))
    result = nf.fit("mlp", data, "ce", epochs=1)
    with pytest.raises(InputError, match="column 'zip' has a missing value at row 1, the training set had none"):
        result.predict({"zip": [1, None, 2]})
    with pytest.raises(InputError, match="column 'zip' holds a category, the training set had numbers"):
        result.predict({"zip": ["a", "b", "a"]})
    gaps = LabeledData({"zip": [1, None, 2]}, ["yes", "no", "no"])
    with pytest.raises(InputError, match="test does not match the training set: column 'zip' has a missing value"):
        nf.fit("mlp", data, "ce", epochs=1, test=gaps)


def test_a_test_set_of_complete_numbers_is_encoded_as_the_training_set() -> None:
    train = LabeledData({"a": [1.0, None, 3.0, 5.0], "b": [1, 2, 3, 4]}, [0, 1, 0, 1])
    test = LabeledData({"b": [1.0, 2.0], "a": [3.0, 3.0]}, [0, 1])
    assert isinstance(test.inputs, torch.Tensor)
    matched = InputForm.of(train).match("test", test)
    assert matched.take(torch.arange(2)).shape == (2, 3)
    assert matched.take(torch.arange(2))[:, 1].tolist() == [0, 0]  # nothing is missing


def test_pieces_of_words_keep_their_case_but_those_of_older_models() -> None:
    loud = ["SO VERY LOUD", "so very loud", "VERY LOUD SO", "very loud so"]
    encoder = LabeledData(loud, [0, 1, 0, 1]).inputs.encoder  # type: ignore[union-attr]
    state = encoder.state()
    assert {"LO", "lo"} <= set(state[0]["pieces"]["terms"])
    assert "loud" in state[0]["words"]["terms"]
    assert "LOUD" not in state[0]["words"]["terms"]
    lower = [term == term.lower() for term in state[0]["pieces"]["terms"]]
    for key in ("terms", "idf"):
        state[0]["pieces"][key] = [one for one, keep in zip(state[0]["pieces"][key], lower, strict=True) if keep]
    older = TableEncoder.from_state([state[0] | {"pieces": state[0]["pieces"] | {"analyzer": "char_wb"}}])
    shouted, said = older.encode(Table.read({"text": loud[:2]}, kinds={"text": "text"}).columns)
    assert torch.equal(shouted, said)


def test_marks_and_line_breaks_are_terms_as_words_are_but_not_of_older_models() -> None:
    said = ["I agree!\n  -- a friend", "I agree ...", "we agree!\n  -- a friend", "we agree ..."]
    encoder = LabeledData(said, [0, 1, 0, 1]).inputs.encoder  # type: ignore[union-attr]
    state = encoder.state()
    assert {"!", "...", "\n  ", "i", "agree !", "\n   --"} <= set(state[0]["words"]["terms"])
    words = {"analyzer": "word", "terms": ["agree", "friend"], "idf": [1.0, 1.5]}
    older = TableEncoder.from_state([state[0] | {"words": words}])
    found = older.encode(Table.read({"text": ["agree!", "agree"]}, kinds={"text": "text"}).columns)[:, :2]
    assert found.tolist() == [[5, 0], [5, 0]]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: parts[0].update(kind="numbr"),
        lambda parts: parts[0].update(kind="category"),
        lambda parts: parts[0].update(median="x"),
        lambda parts: parts[1].update(values=[1, 2]),
        lambda parts: parts[1]["values"].append("more"),
        lambda parts: parts[5]["words"].update(idf=[1.0]),
        lambda parts: parts[5]["pieces"].update(analyzer="letters"),
        lambda parts: parts.pop(),
    ],
)
def test_a_tampered_encoder_is_refused(trained: tuple[Path, nf.FitResult], tmp_path: Path, spoil: Any) -> None:
    state = checkpoint.load(trained[0] / "model.safetensors")
    spoil(state["encoder"])
    checkpoint.save(tmp_path / "model.safetensors", state)
    with pytest.raises(InputError, match="damaged or no checkpoint"):
        nf.load_model(tmp_path)


def test_beyond_the_limit_rows_are_encoded_when_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Table.read(frame())
    monkeypatch.setattr("noiseproof.data.table._KEEP", 0)
    rows = torch.tensor([5, 3, 3, 100])
    assert Table.read(frame()).take(rows).equal(kept.take(rows))


def test_a_resumed_run_ends_with_the_same_bits(trained: tuple[Path, nf.FitResult], tmp_path: Path) -> None:
    from noiseproof.training.interrupt import Interrupted

    data = LabeledData(frame(), labels_of(frame()), kinds={"zip": "category"})
    train, test = data.split(0.25)

    class Stop:
        def start(self, run: Any, title: str) -> None: ...
        def epoch(self, run: Any) -> None: ...
        def close(self) -> None: ...
        def step(self, run: Any, epoch: float) -> None:
            if run.step == 2:
                raise KeyboardInterrupt

    settings = {"epochs": 3, "val": 0.2, "test": test, "batch_size": 32, "checkpoint_steps": 1}
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        nf.fit("mlp", train, "elr", out=tmp_path / "a", progress=Stop(), **settings)
    resumed = nf.fit("mlp", train, "elr", out=tmp_path / "a", resume=True, **settings)
    unbroken = nf.fit("mlp", train, "elr", **settings)
    for a, b in zip(resumed.model.parameters(), unbroken.model.parameters(), strict=True):
        assert a.equal(b)
    other = LabeledData(frame(seed=3), labels_of(frame(seed=3)), kinds={"zip": "category"}).split(0.25)[0]
    with pytest.raises(InputError, match="was begun with data="):
        nf.fit("mlp", other, "elr", out=tmp_path / "a", resume=True, **settings)


def test_what_is_text_in_training_is_text_in_other_files(tmp_path: Path) -> None:
    """A CSV file of few rows may look like numbers, truths or gaps where the training set had texts."""
    code = ["007", "X7", "NA", "07"] * 10
    member = ["True", "maybe", "False", "True"] * 10
    size = [1, 2, 3, 4] * 10
    whole = pd.DataFrame({"code": code, "member": member, "size": size, "full": ["true", "false"] * 20})
    labelled = whole.assign(label=["a", "b"] * 20)
    labelled.to_csv(tmp_path / "x-train.csv", index=False)
    labelled.iloc[[0, 3, 7]].to_csv(tmp_path / "x-test.csv", index=False)
    kinds = {"size": "category"}
    train = nf.load(tmp_path / "x-train.csv", kinds=kinds)
    wanted = train.take(torch.tensor([0, 3, 7]))
    assert texts_of(train) == ["code", "member"]  # 1 and true are read as they were
    encoder = train.inputs.encoder  # type: ignore[union-attr]
    assert text_columns(encoder.levels()) == ["code", "member"]
    (tmp_path / "x-test.csv").rename(tmp_path / "y.csv")
    apart = nf.load(tmp_path / "y.csv", kinds=kinds, texts=texts_of(train))
    assert apart.encoded_by(encoder).take(torch.arange(3)).equal(wanted)
    (tmp_path / "y.csv").rename(tmp_path / "x-test.csv")
    beside = nf.load(tmp_path / "x-train.csv", split="test", kinds=kinds)
    assert beside.encoded_by(encoder).take(torch.arange(3)).equal(wanted)


def test_from_a_file(tmp_path: Path) -> None:
    table = frame().assign(label=labels_of(frame()))
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")
    read = [nf.load(tmp_path / name, kinds={"zip": "category"}) for name in ("a.csv", "a.parquet")]
    memory = LabeledData(frame(), labels_of(frame()), kinds={"zip": "category"})
    for data in read:
        torch.testing.assert_close(data.take(torch.arange(120)), memory.take(torch.arange(120)))
        assert data.labels.equal(memory.labels)
    few = nf.load(tmp_path / "a.csv", limit=30, feature_columns=["edu", "age"])
    assert (len(few), few.feature_names) == (30, ("edu", "age"))
    with pytest.raises(InputError, match=r"a.csv: unknown column in kinds: 'zap'; did you mean 'zip'"):
        nf.load(tmp_path / "a.csv", kinds={"zap": "category"})
    with pytest.raises(InputError, match="has no use for kinds"):
        nf.load("digits", kinds={"a": "number"})
