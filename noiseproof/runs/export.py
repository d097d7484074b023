"""A trained network as one file that needs nothing of this library: ONNX, or a program of torch.export.

Normalisation is inside: the file takes raw inputs, in batches of any size, and says in its metadata what they are and
how the classes are called. Before it is put in place it is run, and compared with the network it was made from.
"""

from __future__ import annotations

import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks, files
from noiseproof.data.input_form import InputForm
from noiseproof.errors import InputError, reason, shown
from noiseproof.models.inference import eval_mode, probabilities
from noiseproof.runs import loading
from noiseproof.runs._deployed import Deployed, Metadata
from noiseproof.runs.trained import Features, Predictor

TOLERANCE = 1e-5  # of probabilities; of features, relative to the largest
DTYPES = ("auto", "uint8", "float32")
_SIZES = (5, 1)  # batches that the file is tried with; it is made with the first

Program = Callable[[list[Tensor]], Tensor]  # what was written, read back


@dataclass(frozen=True)
class Exported:
    """What `export` wrote."""

    path: Path
    metadata: Metadata  # as it stands in the file: texts, and JSON
    difference: float | None  # the largest between the file's answers and the network's; None: not compared
    encoder: Path | None = None  # beside it, how columns become the features that it takes


def export(
    trained: Predictor | Features | str | Path,
    path: str | Path,
    *,
    softmax: bool = False,
    dtype: str = "auto",
    model: loading.Maker | None = None,
) -> Exported:
    """Write a trained network, with its normalisation, as `.onnx` or `.pt2`; or a backbone's weights as `.safetensors`.

    The classifier gives logits (B, K), or probabilities; where a method trained two networks, those of the mean of
    their probabilities. A backbone gives features (B, F). A table with categories, gaps, dates or texts has its network
    exported on the encoded features, and the encoder written beside it: `nf.load_encoder`.

    Args:
        trained: a run's folder, what `load_model` or `load_backbone` gives, or the `predictor` of a result.
        path: ends in .onnx, .pt2 or .safetensors.
        softmax: give probabilities in the place of logits.
        dtype: of images: "uint8", colours in 0..255; "float32", in 0..1 (or as the training set had them); "auto" is
            uint8 where it can be. Anything else is float32, tokens int64.
        model: a function that makes the network, where a run's folder is given and the network has no name here.

    Raises:
        InputError: a network that cannot be exported, or a file that does not do as the network does.
    """
    path = checks.path("path", path)
    checks.boolean("softmax", softmax)
    checks.choice("dtype", dtype, DTYPES)
    if path.suffix not in (*_FORMATS, ".safetensors"):
        known = ", ".join((*_FORMATS, ".safetensors"))
        torchscript = "; TorchScript is deprecated by PyTorch" if path.suffix in (".pt", ".pth", ".pts", ".ts") else ""
        named = path.with_suffix(".pt2") if path.name else "model.pt2"
        raise InputError(f"{path} must end in one of {known}{torchscript}; name it so, e.g. {named}")
    if isinstance(trained, str | Path):
        trained = _load(trained, model, path.suffix == ".safetensors")
    if not isinstance(trained, Predictor | Features):
        raise InputError(f"trained must be the folder of a run, or what load_model gives, got {shown(trained)}")
    if path.suffix == ".safetensors":
        return Exported(path, write_weights(trained, path), None)
    make, read = _FORMATS[path.suffix]
    deployed = Deployed(trained, softmax, _dtype(dtype, trained.form))
    beside = path.with_suffix(".encoder.json") if trained.form.encoder is not None else None
    metadata = deployed.describe(trained, beside)
    examples = deployed.examples(_SIZES[0])
    with _quietly(trained.architecture), eval_mode(deployed):
        content = make(deployed, examples, metadata)
        program = read(content)
        difference = None if program is None else _difference(trained, deployed, program)
    if difference is not None and not difference <= TOLERANCE:
        raise InputError(
            f"{path} would differ from the network by {difference:.2g}, more than {TOLERANCE:g}; it was not written, "
            "try another format or report it"
        )
    if beside is not None and trained.form.encoder is not None:
        files.write_text(beside, json.dumps(trained.form.encoder.state(), ensure_ascii=False, indent=1) + "\n")
    files.write_atomically(path, lambda temporary: temporary.write_bytes(content))
    return Exported(path, metadata, difference, beside)


def write_weights(trained: Predictor | Features, path: Path) -> Metadata:
    """Write a backbone's weights as a plain safetensors file, under torchvision's and timm's names.

    Our residual networks carry those names already (conv1, bn1, layer1.0.conv1, …); what is left out is the head, `fc`
    there, so that `load_state_dict(weights, strict=False)` misses fc.* alone. A network built for small images has a
    3×3 first convolution and no pooling: give torchvision's the same, or build with model "resnet50(stem='imagenet')".
    Networks that torchvision does not have keep their own names. The metadata has mean and std of the inputs, in units
    of 0..1, and the size of the images.
    """
    from safetensors.torch import save_file

    if isinstance(trained, Predictor):
        backbone = loading.as_backbone(trained.models[0])
        trained = Features(backbone, trained.normalize, trained.form, trained.architecture)
    weights = {key: value.detach().cpu().contiguous().clone() for key, value in trained.weights.items()}
    told = {
        "architecture": trained.architecture or type(trained.backbone).__name__,
        "mean": json.dumps(trained.normalize.mean.tolist()),
        "std": json.dumps(trained.normalize.std.tolist()),
        "input_shape": json.dumps(list(trained.form.shape)),
    }
    metadata = {"format": "pt", **told}
    files.write_atomically(path, lambda temporary: save_file(weights, temporary, metadata=metadata))
    return metadata


def load_encoder(path: str | Path) -> Callable[[Any], np.ndarray]:
    """The encoder that `export` wrote beside a network of a table or of texts: columns (n rows) to features (n, d).

        features = nf.load_encoder("model.encoder.json")(frame)      # float32, what the network takes as "inputs"

    Raises:
        InputError: the file is none.
    """
    from noiseproof.data.table import TableEncoder

    path = checks.path("path", path)
    if not path.is_file():
        raise InputError(f"there is no {path}; pass the .encoder.json that export wrote beside the network")
    try:
        encoder = TableEncoder.from_state(files.parse_json(path.read_bytes()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is no encoder ({reason(error)}); export the run again") from error
    form = InputForm((encoder.width,), encoder=encoder)

    def encode(columns: Any) -> np.ndarray:
        rows = form.raw(columns)
        return (rows if isinstance(rows, Tensor) else rows.take(torch.arange(rows.shape[0]))).numpy()

    return encode


def _load(run: str | Path, model: loading.Maker | None, weights: bool) -> Predictor | Features:
    classifier = Path(run) / Predictor.file if Path(run).is_dir() else Path(run)
    if weights or ((classifier.parent / Features.file).is_file() and not classifier.is_file()):
        return loading.load_backbone(run, model)
    return loading.load_model(run, model)


def _dtype(asked: str, form: InputForm) -> torch.dtype:
    can = len(form.shape) == 3 and form.unit is not False
    if asked == "uint8" and not can:
        raise InputError("dtype='uint8' is for images whose training set was bytes or lay in 0..1; use 'float32'")
    return torch.uint8 if can and asked != "float32" else torch.float32


def _difference(trained: Predictor | Features, deployed: Deployed, program: Program) -> float:
    """The largest difference between what the file and the network say; NaN where one of them does."""
    differences = []
    for size in _SIZES:
        rows = deployed.rows(size)
        told = program(deployed.tensors(rows)).float()
        inputs = trained.normalize(rows.to(trained.device))
        with torch.no_grad():
            if isinstance(trained, Features):
                with eval_mode(trained.backbone):
                    own = trained.backbone.features(inputs).cpu()
                largest = max(1.0, float(own.abs().max()))
                own, told = own / largest, told / largest
            else:
                with eval_mode(trained.models):
                    own = probabilities(trained.models, inputs).cpu()
                told = told if deployed.softmax else told.softmax(dim=1)
        differences.append(float((own - told).abs().max()) if own.shape == told.shape else math.inf)
    return float(np.max(differences))  # unlike max, it keeps NaN


@contextmanager
def _quietly(architecture: str | None) -> Iterator[None]:
    """Without what the exporters say of themselves; and what they cannot do, as one sentence."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except Exception as error:  # whatever a stranger's forward makes of being traced
        raise InputError(
            f"the network {architecture or ''} cannot be exported ({reason(error)}); let its forward not branch on the "
            "values of tensors, or deploy with load_model(run).predict"
        ) from error
    finally:
        logger.setLevel(level)


def _make_onnx(deployed: Deployed, examples: list[Tensor], metadata: Metadata) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"an .onnx file is made with onnx and onnxscript ({reason(error)}); pip install 'noiseproof[export]', or "
            "write a .pt2"
        ) from error
    names = [name or "inputs" for name in deployed.names]
    program: Any = torch.onnx.export(
        deployed, tuple(examples), dynamo=True, verbose=False, input_names=names, output_names=[deployed.output],
        dynamic_shapes={"tensors": tuple(deployed.dimensions())},
    )  # fmt: skip
    program.model.metadata_props.update(metadata)
    return program.model_proto.SerializeToString()


def _read_onnx(content: bytes) -> Program | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(tensors: list[Tensor]) -> Tensor:
        given = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run


def _make_pt2(deployed: Deployed, examples: list[Tensor], metadata: Metadata) -> bytes:
    shapes = {"tensors": tuple(deployed.dimensions())}
    with torch.no_grad():
        program = torch.export.export(deployed, tuple(examples), dynamic_shapes=shapes)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"metadata.json": json.dumps(metadata, ensure_ascii=False)})
    return content.getvalue()


def _read_pt2(content: bytes) -> Program:
    module = torch.export.load(io.BytesIO(content)).module()
    device = next(iter(module.buffers())).device

    def run(tensors: list[Tensor]) -> Tensor:
        with torch.no_grad():
            return module(*(tensor.to(device) for tensor in tensors)).cpu()

    return run


_FORMATS: dict[str, tuple[Callable[[Deployed, list[Tensor], Metadata], bytes], Callable[[bytes], Program | None]]] = {
    ".onnx": (_make_onnx, _read_onnx),
    ".pt2": (_make_pt2, _read_pt2),
}
