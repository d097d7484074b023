"""Three processes against one, over every method: the same gradients, rows and choices in each step."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_contract import PLAIN, STACKS, WRAPPED
from test_replicas import together

from noiseproof import distributed, methods
from noiseproof.coreset import parts
from noiseproof.data import LabeledData, load, noise
from noiseproof.errors import InputError
from noiseproof.method import Batch
from noiseproof.methods import auto, waking
from noiseproof.runs.result import FitResult
from noiseproof.training.batches import Piece
from noiseproof.training.fit import fit
from noiseproof.training.gradients import Gradients
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.rows import Rows

MIXED = "crust(ce, mixup=1.0, weighted=True, selection='medoids')"
QUICK = [*PLAIN, "early_stop(crust(elr))", "label_noise(sop)", "dividemix(warmup=1)", MIXED]
TIMES = {"seconds", "examples_per_second"}


@pytest.fixture(autouse=True)
def _woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the network to memorise wakes up after an epoch: both of its ways are run."""
    monkeypatch.setattr(waking, "_MEMORISED", -1.0)


def small() -> LabeledData:
    """Of which 118 are trained on: three processes cannot share the last batch of 22 evenly."""
    return noise.apply(load("digits").subset(torch.arange(147)), "symmetric:0.3", seed=0)


class Watch:
    """A progress that keeps the gradients, and what the method remembers, of every step."""

    def __init__(self, method: methods.Method) -> None:
        self.method, self.seen = method, []

    def start(self, run, title): ...

    def step(self, run, done):
        state = {"gradient": torch.cat([p.grad.flatten() for p in run.models.parameters() if p.grad is not None])}
        kept = self.method.state_dict()
        self.seen.append(state | {k: v.clone() for k, v in kept.items() if isinstance(v, torch.Tensor)})

    def epoch(self, run): ...

    def close(self): ...


def train(method: str, **more: Any) -> tuple[FitResult, Watch]:
    built = methods.build(method)
    watch = Watch(built)
    options = {"epochs": 4, "batch_size": 32, "lr": 0.02, "val": 0.2, "seed": 3, "device": "cpu", "progress": watch}
    return fit("mlp(widths=[16])", small(), built, **options | more), watch


def told(result: FitResult, watch: Watch) -> dict[str, Any]:
    """What is compared: each step, and what came of it."""
    found = {
        "steps": watch.seen, "models": result.run.models.state_dict(), "kept": result.kept, "final": result.final,
        "history": [{k: v for k, v in one.items() if k not in TIMES} for one in result.history],
    }  # fmt: skip
    if distributed.is_main():
        found |= {"suspicion": result.beliefs.suspicion, "soft_label": result.beliefs.soft_label}
    return found


def difference(one: Any, other: Any, at: str = "") -> str | None:
    """Where two nested values differ by more than rounding."""
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{at}: {sorted(one.keys() ^ other.keys())}"
        found = (difference(one[key], other[key], f"{at}/{key}") for key in one)
    elif isinstance(one, list):
        if len(one) != len(other):
            return f"{at}: {len(one)} and {len(other)}"
        found = (difference(a, b, f"{at}/{i}") for i, (a, b) in enumerate(zip(one, other, strict=True)))
    elif isinstance(one, torch.Tensor) and one.is_floating_point():
        near = torch.allclose(one, other, atol=3e-5, rtol=1e-4, equal_nan=True)
        return None if near else f"{at}: {(one - other).abs().max().item()}"
    elif isinstance(one, torch.Tensor):
        return None if torch.equal(one, other) else f"{at}: other values"
    elif isinstance(one, float):
        return None if one == pytest.approx(other, rel=1e-3, abs=3e-5) else f"{at}: {one} and {other}"
    else:
        return None if one == other else f"{at}: {one} and {other}"
    return next((text for text in found if text is not None), None)


def compare(
    names: list[str],
    folder: Path,
    spoil: Callable[[], None] | None = None,
    *,
    both: dict[str, Any] | None = None,
    **more: Any,
) -> list[Any]:
    """Where three processes, with `more` settings, differ from one, by method, as each of them sees it.

    `spoil` is what they do first; `both` are settings of either.
    """
    more |= both or {}
    for number, name in enumerate(names):
        torch.save(told(*train(name, **(both or {}))), folder / f"alone-{number}.pt")

    def work(folder: Path) -> Any:
        failed = {}
        if spoil is not None:
            spoil()
        for number, name in enumerate(names):
            try:
                found = told(*train(name, **more))
            except InputError as error:
                failed[name] = str(error)
                continue
            alone = torch.load(folder / f"alone-{number}.pt")
            if not distributed.is_main():  # it has no progress, and keeps nothing of single examples
                alone = {key: alone[key] for key in found} | {"steps": []}
            gap = difference(alone, found)
            if gap is not None:
                failed[name] = gap
        return failed

    return together(work, folder, world=3, seconds=600)


@pytest.fixture(autouse=True)
def _without_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit of a finished run takes longer than these runs, and is the same in each process."""
    for name in ("audit_run", "others_say"):
        monkeypatch.setattr(f"noiseproof.training.evaluate.{name}", lambda *_, **__: None)


def test_three_processes_are_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEPROOF_DEBUG", "1")
    assert compare(QUICK, tmp_path) == [{}] * 3


@pytest.mark.slow
def test_three_processes_are_as_one_with_every_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEPROOF_DEBUG", "1")
    assert compare([*WRAPPED, *STACKS], tmp_path) == [{}] * 3


def _forget_rows() -> None:
    methods.registry()["elr"].rows = ()


def _gather_nothing() -> None:
    Batch.gather = lambda self, rows: rows.repeat(3, *[1] * (rows.ndim - 1))[: self.size]  # type: ignore[method-assign]


def _mean_of_own() -> None:
    Batch.mean = lambda self, each: each.mean()  # type: ignore[method-assign]


def _draw_alike() -> None:
    Batch.own = property(lambda self: slice(0, len(self.label)))  # type: ignore[assignment, method-assign]


def _send_nothing() -> None:
    Gradients.finish = lambda self, *_: None  # type: ignore[method-assign]


def _select_apart() -> None:
    parts.gathered = lambda values, place: torch.full_like(place, -1).index_copy_(0, parts.mine(place), values)


SPOILT = [
    ("elr", _forget_rows),
    ("co_teaching(warmup=1)", _gather_nothing),
    ("gce", _mean_of_own),
    ("mixup", _draw_alike),
    ("ce", _send_nothing),
    ("crust(ce)", _select_apart),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILT, ids=[spoil.__name__[1:] for _, spoil in SPOILT])
def test_a_mistake_would_be_noticed(tmp_path: Path, name: str, spoil: Callable[[], None]) -> None:
    assert any(name in failed for failed in compare([name], tmp_path, spoil))


def bits(result: FitResult) -> dict[str, Any]:
    rows = {key: module.get_buffer(name) for key, (module, name) in result.method.row_buffers().items()}
    if not distributed.is_main():  # it may have a part of them
        rows = {}
    return told(result, Watch(result.method)) | {"rows": rows}


def same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_asleep_too_the_processes_do_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "_MEMORISED", 0.075)
    both = {"val": 0.4, "epochs": 2}
    assert not train("elr", **both)[0].run.history[-1]["awake"]
    names = ["sop", "sop_plus", "elr"]
    assert compare(names, tmp_path, both=both) == [{}] * 3


@pytest.mark.parametrize(
    ("further", "share", "stage"), [(0.2, 0.0, auto.TAUGHT), (-9.0, 0.0, auto.TAUGHT), (0.2, 2.0, auto.HOLDS)]
)
def test_what_auto_begins_with_is_that_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: float, share: float, stage: int
) -> None:
    """Few are enough to know the noise by, the others or the network itself: in the runs above it is cross-entropy."""
    settings = {"SLOPE": 100.0, "ENOUGH": 10, "KNOWN": 0.0, "CONVEX": share, "CLEARLY": share, "FURTHER": further}
    for name, value in settings.items():
        monkeypatch.setattr(auto, name, value)
    both = {"val": 0.4, "epochs": 8}
    method = train("auto", **both)[0].method
    assert isinstance(method, auto.Auto)
    assert method._plan is not None
    assert method._plan.stage == stage
    assert (method._plan.q > 0.1) is method._plan.mixes is (stage == auto.TAUGHT)
    assert compare(["auto"], tmp_path, both=both) == [{}] * 3


def test_rows_in_parts_are_those_that_all_hold(tmp_path: Path) -> None:
    keeping = [name for name, cls in methods.registry().items() if cls.rows]
    names = [
        *keeping,
        "sop(lr_u='auto', lr_v='auto')",
        "elr(lam=3)",
        "label_noise(sop)",
        "sop_plus(lr_u='auto', lr_v='auto', full_u=True)",
        "early_stop(crust(elr))",
        "auto",
        "ce",
    ]
    assert {"elr", "sop", "sop_plus", "elr_plus", "joint", "self_adaptive"} <= set(keeping)

    def work(folder: Path) -> Any:
        return [name for name in names if not same(bits(train(name)[0]), bits(train(name, state="sharded")[0]))]

    assert together(work, tmp_path, world=3, seconds=600) == [[], [], []]


class Counts(methods.registry()["ce"]):  # type: ignore[misc]
    """Counts the visits of each example, twice over."""

    rows = ("visits", "flags")

    def start(self, run: Any) -> None:
        self.register_buffer("visits", torch.zeros(9, 2, dtype=torch.float64))
        self.register_buffer("flags", torch.zeros(9, dtype=torch.bool))


@pytest.mark.parametrize("sharded", [False, True])
def test_rows_come_and_go_also_where_one_process_has_all_of_a_step(tmp_path: Path, sharded: bool) -> None:
    def work(folder: Path) -> Any:
        method = Counts()
        method.start(None)
        held = Rows(method, 9, sharded=sharded)
        for rows in ([0, 3, 6], [8, 0, 4, 1, 6], [2, 5, 8]):  # of the first and last, one process has all
            piece = Piece(torch.tensor(rows), None)
            batch = Batch((), piece.own, piece.own, sizes=piece.sizes)
            held.fetch(piece, batch)
            method.visits[batch.row] += torch.stack([batch.index + 1.0, torch.ones(len(batch.index))], dim=1)
            method.flags[batch.row] = True
            held.exchange(piece, batch)
        held.collect()
        return [method.visits.tolist(), method.flags.tolist()] if distributed.is_main() else None

    visits = [2, 1, 1, 1, 1, 1, 2, 0, 2]
    expected = [[[(i + 1.0) * count, count] for i, count in enumerate(visits)], [count > 0 for count in visits]]
    assert together(work, tmp_path, world=3) == [expected, None, None]


class Stop(Watch):
    """Ctrl-C in the sixth step."""

    def step(self, run, done):
        if run.step == 6:
            signal.raise_signal(signal.SIGINT)


def test_damage_to_one_part_is_damage_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process finds its part spoilt: all go on from the checkpoint before, to the same bits."""
    monkeypatch.setattr(FitResult, "save", lambda *_, **__: None)  # there is no audit to write
    out = tmp_path / "run"

    def begin(folder: Path) -> Any:
        try:
            train("elr", out=out, state="sharded", checkpoint_steps=3, progress=Stop(methods.build("elr")))
        except Interrupted:
            return "interrupted"

    def go_on(folder: Path) -> Any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = bits(train("elr", out=out, state="sharded", resume=True)[0])
        assert any("going on from the one before it" in str(one.message) for one in warned)
        return same(found, bits(train("elr", state="sharded")[0]))

    for name in ("begin", "go_on"):
        (tmp_path / name).mkdir()
    assert together(begin, tmp_path / "begin", world=2) == ["interrupted"] * 2
    newest = max(out.glob("rows-*-1-of-2.safetensors"), key=lambda path: int(path.name.split("-")[1]))
    newest.write_bytes(newest.read_bytes()[:-40])
    assert together(go_on, tmp_path / "go_on", world=2) == [True, True]


def test_a_run_goes_on_with_more_or_fewer_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in parts are dealt out anew, and results differ by rounding."""
    monkeypatch.setattr(FitResult, "save", lambda *_, **__: None)  # there is no audit to write
    name, out = "early_stop(label_noise(sop))", tmp_path / "run"
    alone = told(*train(name))

    def begin(folder: Path) -> Any:
        try:
            train(name, out=out, state="sharded", progress=Stop(methods.build(name)))
        except Interrupted:
            return "interrupted"

    def go_on(folder: Path) -> Any:
        found = told(*train(name, out=out, state="sharded", resume=True))
        return difference({key: alone[key] for key in found} | {"steps": []}, found | {"steps": []})

    for world, work, answer in ((3, begin, "interrupted"), (2, go_on, None)):
        folder = tmp_path / str(world)
        folder.mkdir()
        assert together(work, folder, world) == [answer] * world


def test_mixing_with_what_others_remember_is_refused(tmp_path: Path) -> None:
    def work(folder: Path) -> Any:
        train("crust(elr, mixup=1.0, selection='medoids')")

    assert all("use one process, or leave out mixup" in answer for answer in together(work, tmp_path))
