"""Data sets that come as lists of image files: WebVision 1.0 (its Google half) and Clothing1M.

WebVision: root/info/train_filelist_google.txt and val_filelist.txt hold lines `path label`, root/info/synsets.txt the
class names in order; the images of the test set, which is WebVision's validation set, lie in root/val_images_256. With
`label_column="mini"` only the first 50 classes are read, as the papers do.

Clothing1M: noisy_train_key_list.txt and clean_test_key_list.txt hold paths, noisy_label_kv.txt and clean_label_kv.txt
lines `path label`, category_names_eng.txt the class names; all under root or root/annotations.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import Options, Split, Splits, splits
from noiseproof.errors import InputError

_Pairs = Callable[[], list[tuple[str, int]]]  # (path, label) of each image
_MINI_CLASSES = 50


def find(path: Path) -> Splits | None:
    """The splits of a WebVision or Clothing1M folder; None for any other."""
    info = path / "info"
    if (info / "train_filelist_google.txt").is_file():
        names = _synsets(info / "synsets.txt")
        images = next((d for d in (path / "val_images_256", path / "val_images") if d.is_dir()), path)
        train, val = info / "train_filelist_google.txt", info / "val_filelist.txt"
        test = _split(images, lambda: _pairs(val), names, mini=True, test=True) if val.is_file() else None
        return splits(_split(path, lambda: _pairs(train), names, mini=True, test=False), test)
    for folder in (path, path / "annotations"):
        if (folder / "noisy_train_key_list.txt").is_file():
            names = _lines(folder / "category_names_eng.txt") or [str(k) for k in range(14)]
            return {
                "train": _split(path, _keyed(folder, "noisy_train", "noisy"), names, mini=False, test=False),
                "test": _split(path, _keyed(folder, "clean_test", "clean"), names, mini=False, test=True),
            }
    return None


def _split(root: Path, pairs: _Pairs, names: list[str], *, mini: bool, test: bool) -> Split:
    def read(options: Options) -> LabeledData:
        options.refuse(root, "image_column", "feature_columns")
        if options.label_column not in (None, "mini") or (options.label_column and not mini):
            raise InputError(
                f"{root}: no label_column {options.label_column!r}; leave it out" + " or pass 'mini'" * mini
            )
        listed = [(path, label) for path, label in pairs() if options.label_column is None or label < _MINI_CLASSES]
        if not listed:
            raise InputError(f"{root}: the file list is empty; fetch it again")
        paths, labels = [path for path, _ in listed], [label for _, label in listed]
        kept = names[:_MINI_CLASSES] if options.label_column else names
        class_names = kept or [str(k) for k in range(max(labels) + 1)]
        images = [root / path for path in paths]
        return options.build(
            root, images, labels, class_names=class_names, ids=paths, image_names=paths, allow_empty=test
        )

    return read


def _pairs(path: Path) -> list[tuple[str, int]]:
    """Lines `path label`."""
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        name, _, label = line.rpartition(" ")
        if not name or not label.isdigit():
            raise InputError(f"{path}, line {number} is not `path label`: {line!r:.60}; fix the line")
        pairs.append((name.strip(), int(label)))
    return pairs


def _keyed(folder: Path, keys: str, labels: str) -> _Pairs:
    """The images of a list of keys, with the labels a second file gives them."""

    def pairs() -> list[tuple[str, int]]:
        label_of = dict(_pairs(folder / f"{labels}_label_kv.txt"))
        listed = _lines(folder / f"{keys}_key_list.txt")
        for key in listed:
            if key not in label_of:
                raise InputError(f"{folder}/{labels}_label_kv.txt has no label for {key}; fetch it again")
        return [(key, label_of[key]) for key in listed]

    return pairs


def _synsets(path: Path) -> list[str]:
    """The first name of each line `n01440764 tench, Tinca tinca`; the whole line where two classes share a name."""
    lines = _lines(path)
    names = [line.partition(" ")[2].split(",")[0].strip() or line for line in lines]
    return [name if names.count(name) == 1 else line for name, line in zip(names, lines, strict=True)]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
