"""`noiseproof predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.app import app
from noiseproof.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from noiseproof.runs.trained import Predictor

EXAMPLES = """[bold]Examples[/bold]

  noiseproof predict runs/photos-auto-s0 new-photos/ --out predictions.parquet

  cat rows.csv | noiseproof predict runs/people-auto-s0 - > predictions.csv
"""


@app.command(epilog=EXAMPLES)
def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of fit.")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Images, a folder of them, a CSV or Parquet table, npz, …; - reads CSV from stdin."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A .parquet or .csv file; by default CSV on stdout.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
) -> None:
    """Class names and probabilities for new inputs, by the model of a run."""
    from noiseproof.cli.console import wrote
    from noiseproof.runs.loading import load_model
    from noiseproof.training.progress import counting

    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise InputError(f"--out must end in .parquet or .csv, got {out}; name it so")
    model = load_model(run, device=device)
    with counting("predicting") as progress:
        ids, given = read_inputs(model, inputs)
        table = as_table(model, ids, model.predict_proba(given, progress=progress))
    if out is None:
        from pyarrow import csv

        csv.write_csv(table, sys.stdout.buffer)
        return
    write(table, out)
    wrote(out, f": {len(table):,} rows")


def read_inputs(model: Predictor, inputs: list[str]) -> tuple[list[Any] | None, Any]:
    """What to ask the model about, and its ids."""
    from noiseproof.data import LazyImages, load
    from noiseproof.data.input_checks import readable
    from noiseproof.data.readers import tables
    from noiseproof.data.readers.folder import EXTENSIONS, image_ids, images_below

    paths = [Path(one) for one in inputs]
    missing = next((path for path in paths if str(path) != "-" and not path.exists()), None)
    if missing is not None:
        raise InputError(f"{missing} does not exist; check the path")
    if all(path.suffix.lower() in EXTENSIONS for path in paths):
        return [readable(one) for one in inputs], paths
    if len(paths) > 1:
        raise InputError(f"give image files, or one of anything else, got {', '.join(inputs[:5])}")
    [path] = paths
    if len(model.form.shape) == 3 and path.is_dir() and (images := sorted(images_below(path))):
        return image_ids(path, images), images
    if len(model.form.shape) == 3 and path.is_file() and (tables.is_parquet(path) or tables.is_csv(path)):
        ids, encoded = tables.images(path)
        channels, height, width = model.form.shape
        return ids, LazyImages(encoded, (height, width), gray=channels == 1, names=str(path))
    table = _table(path, model)
    if table is not None:
        return table["id"].to_pylist() if "id" in table.column_names else None, table
    data = load(path, labeled=False)
    return data.ids, data


def _table(path: Path, model: Predictor) -> pa.Table | None:
    """A table of a file, or of stdin, its columns of text as such; None where it is none."""
    from noiseproof.data.readers.table_files import is_csv, is_parquet, parse_csv, read_all, read_table, text_columns

    texts = [] if model.form.encoder is None else text_columns(model.form.encoder.levels())
    if str(path) == "-":
        return parse_csv(Path("stdin"), read_all(sys.stdin.buffer), texts=texts)
    return read_table(path, texts=texts) if path.is_file() and (is_parquet(path) or is_csv(path)) else None


def as_table(model: Predictor, ids: list[Any] | None, probability: np.ndarray) -> pa.Table:
    """A row for each input: its id, the likeliest class, its probability, and those of all classes."""
    import pyarrow as pa

    best = probability.argmax(axis=1)
    columns: dict[str, Any] = {
        "id": [str(one) for one in (range(len(probability)) if ids is None else ids)],
        "predicted": [model.class_names[k] for k in best],
        "confidence": probability.max(axis=1) if len(probability) else probability[:, 0],
    }
    return pa.table(columns | {f"p_{name}": probability[:, k] for k, name in enumerate(model.class_names)})


def write(table: pa.Table, out: Path) -> None:
    """A table as a file, by its suffix; atomically."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    from noiseproof.files import write_atomically

    write_atomically(out, lambda path: (pq.write_table if out.suffix == ".parquet" else csv.write_csv)(table, path))
