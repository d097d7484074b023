"""Models of transformers, by their folder: tokenised, padded, trained by the same loop; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import noiseproof as nf
from noiseproof.errors import InputError

transformers = pytest.importorskip("transformers")
WORDS = "the car engine brakes gears rain sunny day morning wind a".split()  # noqa: SIM905
TEXTS = ["the car engine", "a sunny day", "brakes gears the car", "rain wind"] * 10
LABELS = ["car", "weather"] * 20


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer, with a tokeniser of a dozen words."""
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, num_labels=5,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_run_of_texts_through_bert(bert: Path, tmp_path: Path) -> None:
    train, test = nf.LabeledData(TEXTS, LABELS).split(0.25)
    settings = {"epochs": 12, "lr": 0.01, "optimizer": "adamw", "batch_size": 8, "val": 0.2}
    result = nf.fit(f"hf:{bert}", train, "elr", test=test, out=tmp_path / "run", **settings)
    assert result.final["test_accuracy"] > 0.9
    model, asked = nf.load_model(tmp_path / "run"), ["the engine", "a sunny morning", "unheard of"]
    np.testing.assert_array_equal(model.predict_proba(asked), result.predict_proba(asked))
    np.testing.assert_allclose(
        model.predict_proba(pd.DataFrame({"text": asked})), model.predict_proba(asked), atol=1e-6
    )
    assert (model.predict(test) == test.labels.numpy()).mean() > 0.9
    again = nf.fit(f"hf:{bert}", train, "elr", test=test, **settings)
    np.testing.assert_array_equal(again.predict_proba(asked), result.predict_proba(asked))


def test_exported_it_takes_tokens_of_any_length(bert: Path, tmp_path: Path) -> None:
    data = nf.LabeledData(TEXTS, LABELS)
    result = nf.fit(f"hf:{bert}", data, "elr", epochs=1, lr=0.01, optimizer="adamw", batch_size=8)
    done = result.export(tmp_path / "m.pt2", softmax=True)
    assert done.metadata["tokenizer"] == str(bert)
    tokens = transformers.AutoTokenizer.from_pretrained(bert)(TEXTS[:2], padding=True, return_tensors="pt")
    assert tokens["input_ids"].shape[1] == 3  # the longest of the training set has four
    names = [one["name"] for one in json.loads(done.metadata["inputs"])]
    with torch.no_grad():
        found = torch.export.load(done.path).module()(*(tokens[name] for name in names))
    np.testing.assert_allclose(found, result.predict_proba(TEXTS[:2]), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        ("hf:nowhere/at-all", TEXTS, "there is no model of transformers at 'nowhere/at-all' .*nothing is fetched"),
        (None, {"a": TEXTS, "b": TEXTS}, "a model hf:PATH takes one column of texts, got a, b"),
        (None, {"a": list(range(40))}, "a model hf:PATH takes one column of texts, got inputs of shape"),
        (None, {"a": ["", *TEXTS[1:]]}, "column 'a' holds a text of length zero at row 0"),
    ],
)
def test_what_is_refused(bert: Path, model: str | None, inputs: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nf.fit(model or f"hf:{bert}", nf.LabeledData(inputs, LABELS), "ce", epochs=1)
