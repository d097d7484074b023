"""The Jacobian's spectrum of a finished run, at initialisation and now, and its picture.

Li, Soltanolkotabi and Oymak 2020 (arXiv:1903.11680; operator.py has its title), Section 4, Figure 5 and Table 1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.jacobian.operator import Jacobian, Progress
from noiseproof.jacobian.outputs import Chosen
from noiseproof.jacobian.singular import Shares, Spectrum, exact_spectrum, label_vectors, top_singular
from noiseproof.runs import checkpoint
from noiseproof.runs.drawing import BLUE, GREEN, RED, YELLOW, faint_grid, name_axes, new_figure
from noiseproof.runs.folder import INITIAL
from noiseproof.runs.loading import load_model
from noiseproof.runs.structure import mismatch


@dataclass(frozen=True)
class RunSpectrum:
    """The Jacobian of a run's network at its initial weights and now, on the same examples."""

    initial: Spectrum
    now: Spectrum
    initial_shares: dict[str, Shares]  # of residual, labels and noise, for α = ratio times the top value
    now_shares: dict[str, Shares]
    examples: Tensor  # (n,) positions in the data


def spectrum_of_run(
    run: str | Path,
    data: LabeledData,
    *,
    examples: int = 1000,
    k: int | None = 40,
    outputs: str = "all",
    parameters: Chosen = None,
    ratio: float = 0.1,
    calibrate: bool = False,
    tolerance: float = 1e-2,
    model: str | Callable[[], nn.Module] | None = None,
    memory: int = 2 << 30,
    seed: int = 0,
    progress: Progress | None = None,
) -> RunSpectrum:
    """The spectrum of a finished run at initialisation and now: Figure 5 and Table 1.

    Args:
        run: the run folder.
        data: the data it was trained on.
        examples: how many of them, at random; all, if there are fewer.
        k: singular values to compute; None for all of them, exactly. Doubled until those above `ratio` of the top one
            are all there.
        outputs, parameters, memory, progress: of `Jacobian`; parameters by name, prefix or function.
        ratio: of the top singular value, where the information space ends.
        calibrate: set the running statistics of batch norm at initialisation to those of the examples. Those of a fresh
            network are 0 and 1, which training mode never uses.
        tolerance: of `top_singular`.
        model: as for `load_model`, for networks without a name.
        seed: of the choice of examples.

    Raises:
        InputError: no finished run there, or its initial weights do not fit its network.
    """
    predictor = load_model(run, model)
    data = predictor.form.match("the data", data)
    if data.num_classes != len(predictor.class_names):
        raise InputError(
            f"the run has {len(predictor.class_names)} classes, data has {data.num_classes}; pass its own data"
        )
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data), generator=generator)[:examples].sort().values
    inputs = predictor.normalize(data.take(rows))
    labels, truth = data.labels[rows], None if data.true_labels is None else data.true_labels[rows]
    spectra, shares = [], []
    for network in (_initial_network(Path(run), predictor.models, inputs, calibrate), predictor.models[0]):
        jacobian = Jacobian(
            network, inputs, outputs=outputs, labels=labels, parameters=parameters, memory=memory, progress=progress
        )
        spectra.append(_reaching(jacobian, k, ratio, tolerance, seed))
        if not len(spectra[-1].values) or not spectra[-1].values[0] > 0:
            raise InputError("the Jacobian is zero at these weights: no output depends on them to first order")
        split = spectra[-1].split(ratio * float(spectra[-1].values[0]))
        vectors = label_vectors(jacobian, labels, truth)
        shares.append({name: split.shares(vector) for name, vector in vectors.items() if bool(vector.any())})
    return RunSpectrum(spectra[0], spectra[1], shares[0], shares[1], rows)


def _reaching(jacobian: Jacobian, k: int | None, ratio: float, tolerance: float, seed: int) -> Spectrum:
    """The top k values, or as many more as it takes to fall below `ratio` of the first."""
    rank = min(jacobian.shape)
    while k is not None and k < rank:
        found = top_singular(jacobian, k, tolerance=tolerance, seed=seed)
        if len(found.values) < k or float(found.values[-1]) <= ratio * float(found.values[0]):
            return found
        k *= 2
    return exact_spectrum(jacobian)


def _initial_network(run: Path, models: nn.ModuleList, inputs: Tensor, calibrate: bool) -> nn.Module:
    """The first network with the weights and batch statistics the run began with, or those of the inputs."""
    networks = copy.deepcopy(models)
    if not (run / INITIAL).is_file():
        raise InputError(f"there is no {run / INITIAL}; pass the folder of a run of fit")
    state = checkpoint.load(run / INITIAL)
    if "buffers" not in state:
        raise InputError(f"{run / INITIAL} is of an earlier version, without batch statistics; train the run again")
    current = [parameter for parameter in networks.parameters() if parameter.requires_grad]
    buffers = dict(networks.named_buffers())
    began = {key: state[key] for key in ("parameters", "buffers") if key in state}
    if mismatch(began, {"parameters": current, "buffers": buffers}) is not None:
        raise InputError(f"{run / INITIAL} does not fit the network; pass model=, a function that makes it as it was")
    with torch.no_grad():
        for parameter, value in zip(current, state["parameters"], strict=True):
            parameter.copy_(value)
        for name, value in state["buffers"].items():
            buffers[name].copy_(value)
    if calibrate:
        for module in networks.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.reset_running_stats()
                module.momentum = None  # the plain mean over the batches
                module.train()
        with torch.no_grad():
            for block in inputs.split(128):
                networks[0](block)
    return networks.eval()[0]


def plot_spectrum(spectra: Mapping[str, Spectrum], path: Path, *, title: str = "", ratio: float = 0.1) -> None:
    """Singular values against their rank on logarithmic axes, with the line of `ratio` times each top one."""
    figure = new_figure(5.2, 3.6)
    axis = figure.subplots()
    for (name, spectrum), colour in zip(spectra.items(), (BLUE, RED, GREEN, YELLOW), strict=False):
        values = spectrum.values[spectrum.values > 0].cpu().numpy()
        axis.loglog(range(1, len(values) + 1), values, color=colour, lw=1.4, marker=".", ms=4, label=name)
        axis.axhline(ratio * values[0], color=colour, lw=1, ls=":")
    name_axes(axis, title, "rank", "singular value")
    faint_grid(axis)
    axis.legend(loc="upper right", fontsize=9, frameon=False)
    figure.savefig(path, dpi=130, format="png")
