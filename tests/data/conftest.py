"""Small files in every format the readers take, written by hand."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Shared machines stall: a slow example is no failure.
settings.register_profile("shared", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


class Make:
    """Writes files under a folder; each method returns the path of what it wrote."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rng = np.random.default_rng(0)

    def idx_bytes(self, array: np.ndarray) -> bytes:
        return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()

    def mnist(self, name: str = "mnist", n: int = 20, n_test: int = 10, gz: bool = True) -> Path:
        folder = self.root / name
        folder.mkdir()
        for prefix, count in (("train", n), ("t10k", n_test)):
            files = {
                f"{prefix}-images-idx3-ubyte": self.rng.integers(256, size=(count, 6, 5), dtype=np.uint8),
                f"{prefix}-labels-idx1-ubyte": np.arange(count, dtype=np.uint8) % 10,
            }
            for file, array in files.items():
                content = self.idx_bytes(array)
                (folder / (file + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)
        return folder

    def cifar10(self, name: str = "cifar-10-batches-py", n: int = 10, protocol: int = 2, as_bytes: bool = True) -> Path:
        folder = self.root / name
        folder.mkdir()
        names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        key = (lambda k: k.encode()) if as_bytes else (lambda k: k)
        for file in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            data = self.rng.integers(256, size=(n, 3072), dtype=np.uint8)
            batch = {key("data"): data, key("labels"): [i % 10 for i in range(n)], key("batch_label"): key(file)}
            (folder / file).write_bytes(pickle.dumps(batch, protocol=protocol))
        meta = {key("label_names"): [key(c) for c in names], key("num_vis"): 3072}
        (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=protocol))
        return folder

    def cifar100(self, n: int = 200) -> Path:
        folder = self.root / "cifar-100-python"
        folder.mkdir()
        for file in ("train", "test"):
            data = self.rng.integers(256, size=(n, 3072), dtype=np.uint8)
            fine = [i % 100 for i in range(n)]
            batch = {"data": data, "fine_labels": fine, "coarse_labels": [f // 5 for f in fine]}
            (folder / file).write_bytes(pickle.dumps(batch, protocol=2))
        meta = {
            "fine_label_names": [f"fine{i:02}" for i in range(100)],
            "coarse_label_names": [f"c{i}" for i in range(20)],
        }
        (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
        return folder

    def tar(self, folder: Path) -> Path:
        path = self.root / f"{folder.name}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder, arcname=folder.name)
        return path

    def text(self, name: str, *lines: str) -> Path:
        path = self.root / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def bytes(self, name: str, content: bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def parquet(
        self, name: str, columns: dict[str, Any], metadata: dict[bytes, bytes] | None = None, **types: Any
    ) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.root / name
        table = pa.table({k: pa.array(v, type=types.get(k)) for k, v in columns.items()})
        pq.write_table(table.replace_schema_metadata(metadata) if metadata else table, path)
        return path

    def zip(self, name: str, members: dict[str, bytes]) -> Path:
        path = self.root / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return path

    def npz(self, name: str, compressed: bool = False, **arrays: Any) -> Path:
        path = self.root / name
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        return path

    def image(self, size: tuple[int, int] = (8, 8), mode: str = "RGB", kind: str = "PNG", seed: int = 0) -> bytes:
        """The bytes of an image file; size is (width, height)."""
        from PIL import Image

        channels = {"L": (), "RGB": (3,), "RGBA": (4,), "I;16": ()}[mode]
        dtype = np.uint16 if mode == "I;16" else np.uint8
        pixels = np.random.default_rng(seed).integers(
            np.iinfo(dtype).max + 1, size=(size[1], size[0], *channels), dtype=dtype
        )
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, kind)
        return out.getvalue()

    def folder(self, name: str, counts: dict[str, int], **image: Any) -> Path:
        """An image folder with so many images per class."""
        seed = 0
        for class_name, count in counts.items():
            (self.root / name / class_name).mkdir(parents=True)
            for i in range(count):
                self.bytes(f"{name}/{class_name}/{i}.png", self.image(seed=seed, **image))
                seed += 1
        return self.root / name


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return Make(tmp_path)
