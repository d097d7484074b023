"""Slow, obvious twins of the methods with two networks, written from the papers: loops over examples and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from reference.losses import co_teaching, cross_entropy, probabilities
from torch import Tensor

Networks: TypeAlias = Sequence[Callable[[Tensor], Tensor]]
Draws: TypeAlias = Iterator[tuple[float, Tensor]]  # a share and partners of each mixture


def largest(row: Tensor) -> int:
    values = row.tolist()
    return values.index(max(values))


def different(logits1: Tensor, logits2: Tensor) -> list[int]:
    """The examples with different predictions."""
    return [i for i in range(len(logits1)) if largest(logits1[i]) != largest(logits2[i])]


def decoupling(logits1: Tensor, logits2: Tensor, label: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Malach and Shalev-Shwartz (2017), Algorithm 1, divided by no less than a share `least` of the batch."""
    rows = different(logits1, logits2)
    size = max(len(rows), least * len(label), 1)
    totals = []
    for logits in (logits1, logits2):
        each = cross_entropy(logits, label)
        totals.append(sum((each[i] for i in rows), start=0 * logits.sum()) / size)
    return totals[0], totals[1]


def co_teaching_plus(logits1: Tensor, logits2: Tensor, label: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Yu et al. (2019), Algorithm 1: co-teaching over the examples with different predictions."""
    rows = different(logits1, logits2)
    if not rows:
        return 0 * logits1.sum(), 0 * logits2.sum()
    return co_teaching(logits1[rows], logits2[rows], label[rows], max(1, round(rate * len(rows))))


def jocor(logits1: Tensor, logits2: Tensor, label: Tensor, lam: float, keep: int) -> Tensor:
    """Wei et al. (2020), Eqs. (1) to (7): the mean of the smallest joint losses."""
    losses = []
    for row1, row2, y in zip(logits1, logits2, label.tolist(), strict=True):
        p1, p2 = probabilities(row1), probabilities(row2)
        supervised = -torch.log(p1[y]) - torch.log(p2[y])
        contrastive = torch.zeros((), dtype=row1.dtype)
        for a, b in zip(p1, p2, strict=True):
            contrastive = contrastive + a * torch.log(a / b) + b * torch.log(b / a)
        losses.append((1 - lam) * supervised + lam * contrastive)
    return torch.stack(sorted(losses, key=Tensor.item)[:keep]).mean()


def elr_plus(
    logits: Tensor, label: Tensor, target: Tensor, mix: float, permutation: Tensor, lam: float, weight: Tensor
) -> Tensor:
    """Liu et al. (2020), Eq. (6) on mixtures of labels and of targets, with the authors' clamp."""
    losses = []
    for i, row in enumerate(logits):
        j, p = int(permutation[i]), probabilities(row)
        inner = mixed = torch.zeros((), dtype=row.dtype)
        for k, p_k in enumerate(p):
            clamped = min(max(p_k, torch.full_like(p_k, 1e-4)), torch.full_like(p_k, 1 - 1e-4))
            inner = inner + clamped * (mix * target[i, k].item() + (1 - mix) * target[j, k].item())
        for share, of in ((mix, i), (1 - mix, j)):
            mixed = mixed - share * weight[of].item() * torch.log(p[int(label[of])])
        both = mix * weight[i].item() + (1 - mix) * weight[j].item()
        losses.append(mixed + lam * both * torch.log(1 - inner))
    return torch.stack(losses)


def sharpen(p: list[float], temperature: float) -> list[float]:
    """p_k^(1/T) / Σ_l p_l^(1/T)."""
    raised = [p_k ** (1 / temperature) for p_k in p]
    return [value / sum(raised) for value in raised]


def co_targets(
    own: Tensor, other: Tensor, label: Tensor, clean: Tensor, threshold: float, temperature: float
) -> tuple[list[list[float]], list[bool]]:
    """Li et al. (2020), Algorithm 1: co-refinement of the labelled, co-guessing of the others."""
    targets, labelled = [], []
    for i, w in enumerate(clean.tolist()):
        known = w > threshold
        if known:
            y = [1.0 if k == int(label[i]) else 0.0 for k in range(own.shape[1])]
            soft = [w * y_k + (1 - w) * p_k for y_k, p_k in zip(y, own[i].tolist(), strict=True)]
        else:
            soft = [(a + b) / 2 for a, b in zip(own[i].tolist(), other[i].tolist(), strict=True)]
        targets.append(sharpen(soft, temperature))
        labelled.append(known)
    return targets, labelled


def semi_loss(logits: Tensor, target: Tensor, labelled: list[bool], weight: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the labelled and squared error of the others, the latter a mean over classes too."""
    known, guessed = [], []
    for i, row in enumerate(logits):
        p = probabilities(row)
        if labelled[i]:
            known.append(-weight[i] * sum(target[i, k] * torch.log(p_k) for k, p_k in enumerate(p)))
        else:
            guessed.append(weight[i] * sum((p_k - target[i, k]) ** 2 for k, p_k in enumerate(p)) / len(p))
    nothing = 0 * logits.sum()
    return (torch.stack(one).mean() if one else nothing for one in (known, guessed))  # type: ignore[return-value]


def prior_loss(logits: Tensor, prior: Tensor) -> Tensor:
    """Σ_k π_k log(π_k / p̄_k)."""
    rows = [probabilities(row) for row in logits]
    total = torch.zeros((), dtype=logits.dtype)
    for k, share in enumerate(prior.tolist()):
        mean = sum(row[k] for row in rows) / len(rows)
        total = total + share * torch.log(share / mean)
    return total


def elr_plus_step(
    networks: Networks,
    averages: Networks,
    x: Tensor,
    label: Tensor,
    target: Tensor,
    draws: Draws,
    beta: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Both networks' losses on a batch, and the new targets (B, 2, K), which were `target` before."""
    total, target = torch.zeros((), dtype=x.dtype), target.clone()
    for k in (0, 1):
        for i, row in enumerate(averages[1 - k](x)):
            for c, p_c in enumerate(probabilities(row)):
                target[i, k, c] = beta * target[i, k, c] + (1 - beta) * p_c.item()
        share, partner = next(draws)
        share = max(share, 1 - share)
        mixed = torch.stack([share * x[i] + (1 - share) * x[j] for i, j in enumerate(partner.tolist())])
        each = elr_plus(networks[k](mixed), label, target[:, k], share, partner, lam, torch.ones(len(x)))
        total = total + each.mean()
    return total, target


def dividemix_step(
    networks: Networks, views: Sequence[Tensor], label: Tensor, clean: Tensor, draws: Draws,
    *, threshold: float, temperature: float, lam_u: float, lam_r: float,
) -> Tensor:  # fmt: skip
    """Li et al. (2020), Algorithm 1 on a batch that each network's w (B, 2) divides for the other one."""
    said = []
    for network in networks:
        rows = [torch.stack([torch.stack(probabilities(row)) for row in network(view)]).detach() for view in views]
        said.append(sum(rows) / len(views))
    total = torch.zeros((), dtype=views[0].dtype)
    for k in (0, 1):
        targets, known = co_targets(said[k], said[1 - k], label, clean[:, 1 - k], threshold, temperature)
        inputs = [x for view in views for x in view]
        soft = [torch.tensor(row, dtype=views[0].dtype) for _ in views for row in targets]
        share, partner = next(draws)
        share = max(share, 1 - share)
        mixed = torch.stack([share * inputs[i] + (1 - share) * inputs[j] for i, j in enumerate(partner.tolist())])
        goal = torch.stack([share * soft[i] + (1 - share) * soft[j] for i, j in enumerate(partner.tolist())])
        logits = networks[k](mixed)
        certain, guessed = semi_loss(logits, goal, known * len(views), torch.ones(len(inputs)))
        classes = logits.shape[1]
        total = total + certain + lam_u * guessed + lam_r * prior_loss(logits, torch.full((classes,), 1 / classes))
    return total
