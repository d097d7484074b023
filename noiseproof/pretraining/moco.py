"""MoCo: tell an image's other view from the views of all other images.

Kaiming He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, and Xinlei Chen et
al., "Improved Baselines with Momentum Contrastive Learning", 2020 (v2), in the form that Pan Zhou et al., "A
Theory-Driven Self-Labeling Refinement Method for Contrastive Representation Learning", NeurIPS 2021, give it in
Section 3. From s images come queries x_i and keys x̃_i. With unit vectors f_i = f(x_i)/‖f(x_i)‖ of the online network
and g_i = g(x̃_i)/‖g(x̃_i)‖ of the momentum network, and the key set B̄ = (g_1, …, g_s, b_1, …, b_b) (s + b, d) of this
batch's keys and the dictionary of earlier ones:

    log σ(x_i, b̄_k) = ⟨f_i, b̄_k⟩ / τ                                                                  (s, s + b)
    L_c = −(1/s) Σ_i Σ_k y_ik log( σ(x_i, b̄_k) / Σ_l σ(x_i, b̄_l) )      y_i one-hot at k = i           Eq. (4)
    after the step:  ξ ← (1 − ι) ξ + ι w,  then the batch's keys replace the oldest of the dictionary

Differs from the paper: it prints σ = exp(−⟨·,·⟩/τ). With that sign, minimising (4) would push a query away from its own
key and p (sane.py) would be largest on the least similar keys, against the text around both; MoCo has exp(+⟨·,·⟩/τ),
and so has this.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks, distributed
from noiseproof.method import Batch, Method, Run
from noiseproof.methods import ema
from noiseproof.models.inference import eval_mode


def embed(network: nn.Module, x: Tensor) -> Tensor:
    """Unit vectors (B, d) of inputs (B, …)."""
    return F.normalize(checks.single(network(x)), dim=1)


def output_size(run: Run) -> int:
    """d, the outputs of the network with its projection head, tried on two examples."""
    with torch.no_grad(), eval_mode(run.models):
        return run.model(run.normalize(run.data.take(torch.arange(2)).to(run.device))).shape[1]


def log_sigma(query: Tensor, bank: Tensor, temperature: float) -> Tensor:
    """⟨f_i, b̄_k⟩ / τ: unit vectors (s, d) and (m, d) to (s, m), in single precision also under autocast."""
    with torch.autocast(query.device.type, enabled=False):
        return query @ bank.T / temperature


def instance_loss(logits: Tensor) -> Tensor:
    """L_c with the one-hot labels y_ii = 1, Eq. (4): logits (s, s + b) to ()."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def push(dictionary: Tensor, position: Tensor, keys: Tensor) -> None:
    """Replace the oldest rows of the dictionary (b, d), which begin at `position` (), by keys (s, d), in place."""
    keys = keys[-len(dictionary) :]
    at = (position + torch.arange(len(keys), device=keys.device)) % len(dictionary)
    dictionary.index_copy_(0, at, keys.to(dictionary.dtype))
    position.add_(len(keys)).remainder_(len(dictionary))


@dataclass(kw_only=True, eq=False, repr=False)
class MomentumContrast(Method):
    """The momentum network and the dictionary; a subclass says what is minimised over the key set.

    Batch norm may let a query recognise its key by the statistics that the two share: MoCo, whose negatives are all of
    other batches, shuffles the keys over its GPUs for that reason. In (4) the other keys of the batch are negatives
    too, and on one device they share the same statistics, which therefore tell at most that a query's key is of this
    batch, not which one it is. With groups > 1 the keys are shuffled besides over so many parts of the batch, each
    normalised by itself. Under torchrun they are shuffled over the processes, as in MoCo, and the batch is that of all.
    The momentum network keeps its own running statistics.

    Args:
        temperature: τ, above 0. Zhou et al.: 0.2, as MoCo v2.
        dictionary_size: b. Zhou et al.: 4,096 on CIFAR-10, 65,536 on ImageNet. No more than there are images are kept.
            An image whose last key is still in the dictionary is its own negative: few are while b is small beside n.
        ema: 1 − ι, the momentum network's memory, in [0, 1]. Zhou et al. do not give it; MoCo has 0.999 on ImageNet,
            its authors' CIFAR-10 notebook 0.99.
        groups: parts of the batch over which the keys' batch norm is shuffled; 1: the whole batch.
        symmetric: let both views be queries: two losses and twice the keys in a step.

    Raises:
        InputError: an argument outside its range.
    """

    paper = "He et al. 2020"
    needs = "two views"
    cost = "4/3×"
    num_views = 2

    temperature: float = checks.option(0.2, checks.number, low=0, ends="(]")
    dictionary_size: int = checks.option(4096, checks.integer, low=1)
    ema: float = checks.option(0.99, checks.number, low=0, high=1)
    groups: int = checks.option(1, checks.integer, low=1)
    symmetric: bool = checks.option(False, checks.boolean)
    dictionary: Tensor = field(init=False)  # (b, d), from `start` on, as the next two
    position: Tensor = field(init=False)
    target: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keys: Tensor | None = None  # (s, d) of the step under way; in no checkpoint, as those lie between steps

    def start(self, run: Run) -> None:
        self.target = ema.follower(run.model)
        size = min(self.dictionary_size, len(run.data))
        random = torch.randn(size, output_size(run), generator=run.generator)
        self.register_buffer("dictionary", F.normalize(random, dim=1))  # (b, d)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.target.modules())

    def loss(self, run: Run, batch: Batch) -> Tensor:
        first, second, *others = batch.views
        pairs = [(first, second), (second, first)] if self.symmetric else [(first, second)]
        losses, pushed = [], []
        for query, key in pairs:
            keys = self.encode(run, key)  # (s, d), of all processes
            bank = torch.cat([distributed.own_first(keys), self.dictionary])
            losses.append(self.objective(run, query, key, others, bank))
            pushed.append(keys)
        self.keys = torch.cat(pushed)
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    @abstractmethod
    def objective(self, run: Run, query: Tensor, key: Tensor, others: list[Tensor], bank: Tensor) -> Tensor:
        """What to minimise.

        Args:
            query, key, others: views (s, …) of one batch of images.
            bank: the key set (s + b, d), the views `key` first.
        """

    @torch.no_grad()
    def encode(self, run: Run, key: Tensor) -> Tensor:
        """The keys g_i (s, d) of views (s, …): of this process's views alone, or of all processes' in their order."""
        groups = max(min(self.groups, len(key) // 2), 1)
        if not self.normalises or groups * distributed.world() == 1:
            return distributed.gather(embed(self.target, key))
        everyone = distributed.gather(key)
        order = torch.randperm(len(everyone), generator=run.generator).to(key.device)  # the same in all processes
        own = everyone[order.tensor_split(distributed.world())[distributed.rank()]]
        shuffled = distributed.gather(torch.cat([embed(self.target, part) for part in own.tensor_split(groups)]))
        return torch.empty_like(shuffled).index_copy_(0, order, shuffled)

    @torch.no_grad()
    def after_step(self, run: Run, batch: Batch) -> None:
        assert self.keys is not None
        ema.follow(self.target, run.model, self.ema)
        push(self.dictionary, self.position, self.keys)
        self.keys = None


def crowded(method: Method, n: int) -> str | None:
    """What to say of a dictionary that holds keys of more than half of n images; None of a smaller one."""
    if not isinstance(method, MomentumContrast):
        return None
    size = min(method.dictionary_size, n)
    if size <= n / 2 * (2 if method.symmetric else 1):
        return None
    return (
        f"the dictionary holds {size:,} keys of {n:,} images, so that many queries meet their own last key as a "
        "negative; lower dictionary_size"
    )


class MoCo(MomentumContrast):
    """Momentum contrast: a query must pick its own key out of this batch's and thousands of earlier ones.

    Eq. (4) of Zhou et al. (2021) with one-hot labels.

    Differs from the paper (He et al.): the other keys of the batch are negatives too, as in Zhou et al.; in He et al.
    only the dictionary's are.

    Args: those of `MomentumContrast`.
    """

    name = "moco"

    def objective(self, run: Run, query: Tensor, key: Tensor, others: list[Tensor], bank: Tensor) -> Tensor:
        return instance_loss(log_sigma(embed(run.model, query), bank, self.temperature))
