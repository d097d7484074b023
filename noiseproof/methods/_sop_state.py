"""Where SOP keeps u and v: a tensor in memory, of a smaller type if asked, or a file on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from noiseproof.errors import InputError, unknown

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
_BLOCK = 1 << 22  # entries drawn at a time: the state itself may be larger than memory
# float16 holds 6e-5 … 6.5e4 at full precision; scaled by this, an initial 1e-8 and a final 1 both lie inside
_HALF_SCALE = 2.0**15


def smallest(dtype: str) -> float:
    """The smallest u and v that a state of this type, of `DTYPES`, holds in full; they are drawn in single."""
    return max(torch.finfo(DTYPES[dtype]).tiny, torch.finfo(torch.float32).tiny) / _scale(dtype)


def _scale(dtype: str) -> float:
    return _HALF_SCALE if dtype == "float16" else 1.0


class Gradients(NamedTuple):
    """Derivatives of an example's losses with respect to its own u (B,) and v (B, K)."""

    u: Tensor
    v: Tensor


class State(nn.Module):
    """u and v of n examples, drawn from N(0, std²).

    Args:
        full_u: u has K entries for each example, one for each label it might carry, in place of one.
        dtype: what they are kept in, of `DTYPES`; steps are computed in single precision or better.
        file: keep them in this file, memory-mapped, for n · K beyond memory. It is made anew; a file of
            that name that is not of its size is refused.
    """

    u: Tensor  # (n,) or (n, K)
    v: Tensor  # (n, K)

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        std: float,
        generator: torch.Generator,
        *,
        full_u: bool = False,
        dtype: str = "float32",
        file: str | None = None,
    ) -> None:
        super().__init__()
        if dtype not in DTYPES:
            raise unknown("dtype", str(dtype), DTYPES)
        shapes: dict[str, tuple[int, ...]] = {"u": (num_examples,), "v": (num_examples, num_classes)}
        if full_u:
            shapes["u"] = shapes["v"]
        self.mapped = file is not None
        tensors = (
            {name: torch.empty(shape, dtype=DTYPES[dtype]) for name, shape in shapes.items()}
            if file is None
            else _map(Path(file), shapes, DTYPES[dtype])
        )
        self.scale = _scale(dtype)
        for name, tensor in tensors.items():
            flat = tensor.view(-1)
            for start in range(0, len(flat), _BLOCK):
                piece = flat[start : start + _BLOCK]
                piece.copy_(torch.randn(len(piece), generator=generator) * (std * self.scale))
            self.register_buffer(name, tensor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if self.mapped:  # a file stays where it is
            return self
        # to another device, but of the same type: half precision needs its scale
        return super()._apply(lambda t: t.to(fn(t.new_empty(0)).device), recurse)

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": self.scale}

    def set_extra_state(self, state: dict[str, float]) -> None:
        if state["scale"] != self.scale:
            raise InputError("this state was kept in another state_dtype; load it into one of the same")

    def place(self, index: Tensor, label: Tensor) -> Tensor:
        """Where u of each example lies in u laid flat: (B,)."""
        return index if self.u.ndim == 1 else index * self.u.shape[1] + label

    def rows(self, index: Tensor, label: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """u (B,) and v (B, K) of some examples, of the type and on the device of `like`."""
        here = index.to(self.v.device)
        u = self.u.view(-1).index_select(0, self.place(here, label.to(self.v.device)))
        v = self.v.index_select(0, here)
        if u.dtype != like.dtype or u.device != like.device or self.scale != 1:
            u, v = u.to(like) / self.scale, v.to(like) / self.scale
        return u, v

    def move(
        self, index: Tensor, label: Tensor, gradient: Gradients, rate_u: float, rate_v: float, *, project: bool
    ) -> None:
        """u ← u − rate ∂u, v ← v − rate ∂v on the rows `index`; repeated rows add up; then into [−1, 1], if asked.

        Half precision holds up to 2, and there they stop: beyond 1 it makes no difference.
        """
        if fused(self.v, gradient.v):
            place = self.place(index, label)
            kernels().move(self.u.view(-1), self.v, place, index, *gradient, rate_u, rate_v, project)
            return
        index, label = index.to(self.v.device), label.to(self.v.device)
        place = self.place(index, label)
        half, most = self.v.dtype is torch.float16, torch.finfo(self.v.dtype).max
        limit = self.scale if project else most
        for tensor, at, change, rate in (
            (self.u.view(-1), place, gradient.u, rate_u),
            (self.v, index, gradient.v, rate_v),
        ):
            change = change * (-rate * self.scale)
            tensor.index_add_(0, at, (change.clamp(-most, most) if half else change).to(tensor))
            if project or half:
                tensor[at] = tensor[at].clamp(-limit, limit)

    def noise(self, label: Tensor) -> Tensor:
        """u² of each example (n,) for its label (n,), at most 1."""
        everyone = torch.arange(len(self.u), device=self.u.device)
        u = self.u.view(-1)[self.place(everyone, label.to(self.u.device))]
        return (u.to(torch.promote_types(u.dtype, torch.float32)) / self.scale).square().clamp(max=1)

    def other(self) -> Tensor:
        """v² of each example and class (n, K), at most 1."""
        v = self.v.to(torch.promote_types(self.v.dtype, torch.float32)) / self.scale
        return v.square().clamp(max=1)


@cache
def kernels() -> ModuleType:
    """The compiled loops; numba takes half a second to import."""
    from noiseproof.methods import _sop_kernels

    return _sop_kernels


def fused(*tensors: Tensor) -> bool:
    """Do the compiled loops take these tensors? On the CPU, in single precision, laid out row by row."""
    plain = all(t.is_cpu and t.dtype is torch.float32 and t.is_contiguous() for t in tensors)
    return plain and not torch.compiler.is_compiling()


def _map(path: Path, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors of these shapes that lie one after the other in a new file."""
    sizes = {name: int(torch.Size(shape).numel()) for name, shape in shapes.items()}
    size = sum(sizes.values()) * dtype.itemsize
    if path.exists() and path.stat().st_size != size:
        raise InputError(f"{path} is there already and is not the state of this run; choose another state_file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that is too small says so now
        whole = torch.from_file(str(path), shared=True, size=sum(sizes.values()), dtype=dtype)
    except (OSError, RuntimeError) as error:
        raise InputError(f"cannot make the state file {path}: {error}; choose another state_file") from error
    parts = whole.split(list(sizes.values()))
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
