"""The loss of each single-network rival in each phase of a run, put together from the twins of its equations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from reference import rivals as reference
from torch import Tensor, nn

from noiseproof.method import Batch, Beliefs, Run
from noiseproof.methods import build, pes
from noiseproof.methods.cores import CORES
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.d2l import D2L, dimensionality
from noiseproof.methods.dmi import DMI, dmi
from noiseproof.methods.incv import CANDIDATE, INCV, REMOVED, SELECTED, noise_rate
from noiseproof.methods.joint import Joint
from noiseproof.methods.mentornet import MentorNet
from noiseproof.methods.self_adaptive import SelfAdaptive
from noiseproof.methods.t_revision import TRevision, revised
from noiseproof.models.small import MLP

MakeRun = Callable[..., Run]


def whole(run: Run, views: int = 1, weight: Tensor | None = None) -> Batch:
    everyone = torch.arange(len(run.data))
    x = run.data.take(everyone)
    return Batch(tuple(x * (1 + i) for i in range(views)), run.data.labels, everyone, weight)


def logits_of(run: Run, view: int = 0) -> Tensor:
    return run.model(whole(run, view + 1).views[view]).detach().double()


def plain(run: Run) -> Tensor:
    return F.cross_entropy(logits_of(run), run.data.labels)


def same(loss: Tensor, expected: Tensor | float) -> None:
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_self_adaptive(make_run: MakeRun) -> None:
    run, method = make_run(epochs=6), SelfAdaptive(alpha=0.7, warmup=2)
    method.start(run)
    for run.epoch in (0, 1):
        same(method.loss(run, whole(run)), plain(run))
    assert not method.target.any()
    target = F.one_hot(run.data.labels, 3).double()
    for run.epoch in (2, 3):
        expected, target = reference.self_adaptive(logits_of(run), run.data.labels, target, 0.7)
        same(method.loss(run, whole(run)), expected)
        torch.testing.assert_close(method.target.double(), target, rtol=1e-4, atol=1e-5)


def test_joint(make_run: MakeRun) -> None:
    run, method = make_run(epochs=20), Joint(alpha=1.2, beta=0.8, memory=2, warmup=2)
    method.start(run)
    prior = (torch.bincount(run.data.labels) / 12).tolist()
    given, guess = F.one_hot(run.data.labels, 3), logits_of(run).softmax(dim=1)
    for run.epoch, target in ((0, given), (1, given), (2, guess), (12, guess)):
        same(method.loss(run, whole(run)), reference.joint(logits_of(run), target, prior, 1.2, 0.8))
    torch.testing.assert_close(method.beliefs(run, guess).soft_label.double(), guess, rtol=1e-4, atol=1e-5)
    method.past[:] = given[:, None]
    run.epoch = 13  # the second training: the labels found, and nothing else
    same(method.loss(run, whole(run)), plain(run))
    assert torch.equal(method.past[:, 1], given.float())


def test_joint_trains_twice_only_where_there_is_room(make_run: MakeRun) -> None:
    begins = {(20, 2): 13, (14, 2): 9, (13, 2): 13, (20, 12): 13, (20, 13): 20}
    for (epochs, warmup), last in begins.items():
        assert Joint(warmup=warmup)._last(make_run(epochs=epochs)) == last
    run, method = make_run(epochs=20), Joint(warmup=2)
    method.start(run)
    with torch.no_grad():
        run.model[3].weight.zero_()
    for run.epoch, renewed in ((12, False), (13, True)):
        method.before_epoch(run)
        assert bool(run.model[3].weight.any()) is renewed


def test_cores(make_run: MakeRun) -> None:
    run, method = make_run(epochs=20), CORES(beta=2.0, warmup=2)
    method.start(run)
    assert method.num_views == 1
    share = (torch.bincount(run.data.labels) / 12).tolist()
    for run.epoch, beta in ((0, 0.0), (2, 0.0), (5, 1.0)):  # rising, everybody kept
        each, _ = reference.cores(logits_of(run), run.data.labels, share, beta)
        same(method.loss(run, whole(run)), each.mean() / (1 + beta))
        assert method.kept.all()
    run.epoch = 6  # three warm-ups: the sieve
    each, kept = reference.cores(logits_of(run), run.data.labels, share, 4 / 3)
    assert 0 < sum(kept) < 12
    same(method.loss(run, whole(run)), each[torch.tensor(kept)].mean() / (1 + 4 / 3))
    assert method.kept.tolist() == kept


def test_cores_asks_for_like_predictions_of_what_it_dropped(make_run: MakeRun) -> None:
    run, method, without = make_run(epochs=20, epoch=3), CORES(warmup=1, consistency=0.5), CORES(warmup=1)
    assert method.num_views == 2
    for one in (method, without):
        one.start(run)
    labels = run.data.labels
    _, kept = reference.cores(logits_of(run), labels, [1 / 3] * 3, 0.0)
    p, q = logits_of(run).softmax(dim=1), logits_of(run, 1).softmax(dim=1)
    apart = sum(float((p[i] * (p[i] / q[i]).log()).sum()) for i in range(12) if not kept[i]) / 12
    assert apart > 0
    batch = whole(run, 2)
    same(method.loss(run, batch), without.loss(run, batch).detach() + 0.5 * apart)


def test_mentornet(make_run: MakeRun) -> None:
    run, method = make_run(epochs=20), MentorNet(percentile=0.5, decay=0.9, band=1.0, warmup=2, dropout=0.25)
    method.start(run)
    loss = F.cross_entropy(logits_of(run), run.data.labels, reduction="none")
    state = run.generator.get_state()
    kept = method._kept(run, torch.arange(12))
    assert int(kept.sum()) == 9
    run.generator.set_state(state)
    same(method.loss(run, whole(run)), (loss * kept).sum() / 12)
    order = torch.randperm(12)
    run.generator.set_state(state)
    assert torch.equal(method._kept(run, order), kept[order])
    for run.epoch, band in ((2, 0.0), (17, 0.0), (18, 1.0)):  # λ₂ in the last tenth
        weights = torch.tensor(reference.curriculum(loss.tolist(), float(loss.quantile(0.5)), band))
        same(method.loss(run, whole(run)), (weights * loss).mean())
    before = float(method.threshold)
    method._move(torch.tensor([3.0, 3.0]))
    assert float(method.threshold) == pytest.approx(0.9 * before + 0.1 * 3, rel=1e-5)
    method._move(torch.tensor([math.nan, 1.0]))
    assert method.figures(run) == {"threshold": pytest.approx(0.9 * before + 0.1 * 3, rel=1e-5)}


def test_dmi(make_run: MakeRun) -> None:
    run, method = make_run(epochs=6), DMI(scale=0.5, warmup=2)
    method.start(run)
    run.epoch = 1
    same(method.loss(run, whole(run)), plain(run))
    run.epoch = 2
    logits, labels = logits_of(run), run.data.labels
    same(method.loss(run, whole(run)), 0.5 * reference.dmi(logits, labels))
    weight = torch.tensor([2.0, 0.0] * 6)  # twice, or not at all
    torch.testing.assert_close(dmi(logits, labels, weight), dmi(logits[::2], labels[::2]))
    same(method.loss(run, whole(run, weight=weight)), 0.5 * dmi(logits, labels, weight))


def test_d2l(make_run: MakeRun) -> None:
    run, method = make_run(epochs=20, n=30), D2L(lam=2.0, neighbours=7)
    method.start(run)
    with torch.no_grad():
        features = run.model.eval().features(run.data.inputs)
    run.model.train()
    expected = sum(reference.dimensionality(features.double(), 7)) / 30
    method.before_epoch(run)
    assert float(method.dimensions[0]) == pytest.approx(expected, rel=1e-4)
    same(method.loss(run, whole(run)), plain(run))  # before the turn
    method.turn.fill_(3)
    method.dimensions[:6] = torch.tensor([9.0, 5.0, 4.0, 4.5, 4.2, 6.0])
    method._alpha, run.epoch = None, 5
    alpha = math.exp(-2.0 * 5 / 20 * 6.0 / 4.0)
    same(method.loss(run, whole(run)), reference.d2l(logits_of(run), run.data.labels, alpha).mean())
    run.epoch = 6
    assert method.figures(run) == pytest.approx({"lid": 6.0, "alpha": alpha})


@pytest.mark.parametrize(("jump", "turn"), [(3, -1), (4, 3)])
def test_d2l_looks_for_the_turn_after_two_windows(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, jump: int, turn: int
) -> None:
    run, method = make_run(epochs=20), D2L(window=2)
    method.start(run)
    monkeypatch.setattr(D2L, "_dimension", lambda self, run: 9.0 + run.epoch if run.epoch == jump else 5.0 - run.epoch)
    for run.epoch in range(5):
        method.before_epoch(run)
    assert int(method.turn) == turn


def test_t_revision(make_run: MakeRun) -> None:
    transition = 0.7 * torch.eye(3) + 0.1
    run, method = make_run(epochs=10), TRevision(transition=transition)
    method.start(run)
    with torch.no_grad():
        method.slack.copy_(0.1 * torch.arange(9).reshape(3, 3))
    now = revised(transition, method.slack.detach())
    for run.epoch, learned in ((4, False), (5, True)):
        method.slack.grad = None
        loss = method.loss(run, whole(run))
        same(loss, reference.reweighted(logits_of(run), run.data.labels, now.double()).mean())
        loss.backward()
        assert (method.slack.grad is not None) is learned
    assert method.figures(run)["kept_share"] == pytest.approx(float(now.diagonal().mean()))
    floor = revised(transition, -9 * torch.eye(3))
    assert float(floor[0, 0]) == pytest.approx(1e-6 / 0.2, rel=1e-3)
    assert method.optimizers()[0].param_groups[0]["lr"] == 0.01


def test_incv_plans_its_rounds(make_run: MakeRun) -> None:
    for epochs, plan in ((100, (4, 10)), (20, (4, 2)), (15, (2, 3)), (10, (2, 2)), (4, (2, 1)), (3, (2, 1))):
        assert INCV(build("ce"), rounds=2, share=0.4)._plan(make_run(epochs=epochs)) == plan


def test_incv_trains_its_halves_in_turn_round_after_round(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(INCV, "_look", lambda self, run, trained: seen.append(trained))
    method, run = INCV(build("ce"), rounds=2, share=0.4), make_run(epochs=20)
    method.start(run)
    for run.epoch in range(9):
        method.before_epoch(run)
    assert seen == [0, 0, 1, 1, 0, 0, 1, 1]


def test_incv_looks_at_the_other_half_at_its_best(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, method = make_run(epochs=20), INCV(build("ce"))
    method.start(run)
    method.side[6:] = 1
    label, said = run.data.labels, {}

    def tell(right: int) -> None:
        """Let so many of the second half's labels be predicted, with a probability of 0.8."""
        guess = torch.where(torch.arange(12) < 6 + right, label, (label + 1) % 3)
        said["p"] = 0.1 + 0.7 * F.one_hot(guess, 3).float()

    monkeypatch.setattr(Run, "predict", lambda self: said["p"])
    for run.epoch, right, best, rate in ((1, 4, 4, 4), (2, 3, 4, 4), (2, 5, 5, 5), (3, 6, 6, 5)):
        tell(right)
        method._look(run, trained=0)
        assert float(method.best) == pytest.approx(best / 6)
        assert float(method.rate) == pytest.approx(noise_rate(rate / 6, 3), abs=1e-6)
        assert method.right_held.tolist() == [False] * 6 + [True] * best + [False] * (6 - best)
    torch.testing.assert_close(method.loss_held, torch.tensor([0.0] * 6 + [-math.log(0.8)] * 6))


@pytest.mark.parametrize(("rate", "remove", "removed"), [(0.25, True, [5]), (0.5, True, [3, 4, 5]), (0.9, False, [])])
def test_incv_decides(make_run: MakeRun, rate: float, remove: bool, removed: list[int]) -> None:
    run, method = make_run(), INCV(build("ce"), remove=remove)
    method.start(run)
    method.side[6:] = 1
    method.rate.fill_(rate)
    method.right_held[:3] = True
    method.loss_held[:6] = torch.arange(6.0)
    method._decide()
    expected = [SELECTED] * 3 + [REMOVED if i in removed else CANDIDATE for i in range(3, 12)]
    assert method.part.tolist() == expected
    assert method._rows(0).tolist() == [part == SELECTED or (part == CANDIDATE and i < 6)
                                        for i, part in enumerate(expected)]  # fmt: skip


def test_incv_trains_every_network_plainly_in_its_rounds(make_run: MakeRun) -> None:
    run, method = make_run(num_models=2, epochs=20), INCV(build("co_teaching"))
    method.start(run)
    expected = sum(F.cross_entropy(model(run.data.inputs), run.data.labels) for model in run.models)
    same(method.loss(run, whole(run)), expected.detach())
    run.data.wrong = None
    assert method.figures(run) == {"noise": 0}


def test_pes_has_the_papers_epochs(make_run: MakeRun) -> None:
    assert pes.PES(warmup=25)._ends(make_run(epochs=200)) == (25, 32, 37)
    assert pes.PES(warmup=1)._ends(make_run(epochs=20)) == (1, 2, 3)
    run, method = make_run(epochs=20), pes.PES(warmup=1)
    run.models = nn.ModuleList([MLP((2,), 3, widths=(5, 6))])
    method.start(run)
    for run.epoch in (0, 1, 2, 3):  # whatever is held fixed, the loss is that of the whole network
        same(method.loss(run, whole(run)), plain(run))
    selection = method.before_epoch(run)
    assert selection is not None
    assert method.chosen.nonzero().squeeze(1).tolist() == selection.index.tolist()


def test_d2l_takes_the_dimension_of_1280_examples_at_most(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, sizes in ((1300, [128] * 10), (200, [100, 100]), (60, [60])):
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(
            "noiseproof.methods.d2l.dimensionality",
            lambda features, k, asked=asked: asked.append((len(features), k)) or torch.full((len(features),), 2.5),
        )
        run, method = make_run(n=n, epochs=20), D2L()
        method.start(run)
        assert method._dimension(run) == 2.5
        assert asked == [(size, 20) for size in sizes]


@pytest.mark.parametrize(("epochs", "window"), [(10, 2), (20, 2), (49, 4), (50, 5), (119, 5), (120, 6), (200, 10)])
def test_d2l_has_windows_of_a_twentieth(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, epochs: int, window: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("noiseproof.methods.d2l.turned", lambda one, window: asked.append((len(one), window)))
    monkeypatch.setattr(D2L, "_dimension", lambda self, run: 1.0)
    run, method = make_run(epochs=epochs, n=80), D2L()
    run.batch_size = 2  # 40 steps an epoch
    method.start(run)
    for run.epoch in range(2 * window + 2):
        method.before_epoch(run)
    assert asked == [(2 * window + 1, window), (2 * window + 2, window)]


def test_incv_shows_the_inner_method_a_run_of_its_own(make_run: MakeRun) -> None:
    """From the end of the rounds on, in epochs from 0; before, it is not asked."""
    told: list[tuple[str, int, int]] = []

    class Inner(CrossEntropy):
        def note(self, hook: str, run: Run) -> None:
            told.append((hook, run.epoch, run.epochs))

        def after_step(self, run: Run, batch: Batch) -> None:
            self.note("after_step", run)

        def stop(self, run: Run) -> bool:
            self.note("stop", run)
            return True

        def figures(self, run: Run) -> dict[str, float]:
            self.note("figures", run)
            return {"inner": 1.0}

        def finish(self, run: Run) -> int | None:
            self.note("finish", run)
            return 5

        def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
            self.note("beliefs", run)
            return Beliefs.of(predicted, run.data.labels)

    run, method = make_run(epochs=20), INCV(Inner(), rounds=2, share=0.4)
    method.start(run)
    predicted = torch.full((12, 3), 1 / 3)
    run.data.wrong = None
    for run.epoch, over in ((7, None), (8, 0), (17, 9)):
        told.clear()
        method.after_step(run, whole(run))
        assert method.stop(run) is bool(over)
        assert method.figures(run) == ({"inner": 1.0} if over else {}) | {"noise": 0.0}
        assert method.finish(run) == (None if over is None else 13)
        assert (method.beliefs(run, predicted) is None) is (over is None)
        hooks = {None: [], 0: ["after_step", "finish", "beliefs"]}.get(
            over, ["after_step", "stop", "figures", "finish", "beliefs"]
        )
        assert told == [(hook, over, 12) for hook in hooks]


def test_dimensions_of_points_all_alike_or_all_as_far() -> None:
    """Copies: every ratio is 1e-12. Corners of a simplex: every ratio is 1, and the dimension as high as it can be."""
    copies = dimensionality(torch.ones(5, 3), 3)
    torch.testing.assert_close(copies, torch.full((5,), -1 / math.log(1e-12), dtype=torch.float64))
    torch.testing.assert_close(dimensionality(torch.eye(5), 4), torch.full((5,), 1e12, dtype=torch.float64))


def test_d2l_trusts_anew_in_each_epoch(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, method = make_run(epochs=20), D2L(lam=2.0)
    method.start(run)
    monkeypatch.setattr(D2L, "_dimension", lambda self, run: 4.0)
    method.turn.fill_(0)
    for run.epoch in (0, 1, 2):
        method.before_epoch(run)
        expected = reference.d2l(logits_of(run), run.data.labels, math.exp(-2.0 * run.epoch / 20)).mean()
        same(method.loss(run, whole(run)), expected)
