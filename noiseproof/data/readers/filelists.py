"""Data sets that come as lists of image files: WebVision 1.0 (its Google half) and Clothing1M.

WebVision: root/info/train_filelist_google.txt and val_filelist.txt hold lines `path label`, root/info/synsets.txt the
class names in order; the images of the test set, which is WebVision's validation set, lie in root/val_images_256. With
`label_column="mini"` only the first 50 classes are read, as the papers do.

Clothing1M: noisy_train_key_list.txt and clean_test_key_list.txt hold paths, noisy_label_kv.txt and clean_label_kv.txt
lines `path label`, category_names_eng.txt the class names; all under root or root/annotations.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import Options, Splits, splits
from noiseproof.errors import InputError

_MINI_CLASSES = 50


def find(path: Path) -> Splits | None:
    """The splits of a WebVision or Clothing1M folder; None for any other."""
    train, val = path / "info" / "train_filelist_google.txt", path / "info" / "val_filelist.txt"
    if train.is_file():
        names = _synsets(path / "info" / "synsets.txt")
        images = next((d for d in (path / "val_images_256", path / "val_images") if d.is_dir()), path)
        test = partial(_read, images, val, None, names, True) if val.is_file() else None
        return splits(partial(_read, path, train, None, names, False), test)
    for folder in (path, path / "annotations"):
        train, test_keys = folder / "noisy_train_key_list.txt", folder / "clean_test_key_list.txt"
        if train.is_file():
            names = _lines(folder / "category_names_eng.txt") or [str(k) for k in range(14)]
            test = partial(_read, path, test_keys, folder / "clean_label_kv.txt", names, True)
            return splits(partial(_read, path, train, folder / "noisy_label_kv.txt", names, False), test)
    return None


def _read(
    root: Path, listed: Path, labels_path: Path | None, names: list[str], test: bool, options: Options
) -> LabeledData:
    """The images under `root` that a file lists, with the labels it gives them or those of a second file."""
    options.refuse(root, "image_column", "feature_columns", "kinds")
    mini = options.label_column == "mini" and labels_path is None
    if options.label_column is not None and not mini:
        remedy = "leave it out or pass 'mini'" if labels_path is None else "leave it out"
        raise InputError(f"{root}: no label_column {options.label_column!r}; {remedy}")
    pairs = _pairs(labels_path or listed)
    if labels_path is not None:
        keys, label_of = _lines(listed), dict(pairs)
        for key in keys:
            if key not in label_of:
                raise InputError(f"{labels_path} has no label for {key}; fetch it again")
        pairs = [(key, label_of[key]) for key in keys]
    pairs = [(path, label) for path, label in pairs if not mini or label < _MINI_CLASSES]
    if not pairs:
        raise InputError(f"{root}: the file list is empty; fetch it again")
    paths, labels = map(list, zip(*pairs, strict=True))
    class_names = (names[:_MINI_CLASSES] if mini else names) or [str(k) for k in range(max(labels) + 1)]
    images = [root / path for path in paths]
    return options.build(root, images, labels, class_names=class_names, ids=paths, image_names=paths, allow_empty=test)


def _pairs(path: Path) -> list[tuple[str, int]]:
    """Lines `path label`."""
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        name, _, label = line.rpartition(" ")
        if not name or "\0" in name or not label.isdecimal() or len(label) > 9:
            raise InputError(f"{path}, line {number} is not `path label`: {line!r:.60}; fix the line")
        pairs.append((name.strip(), int(label)))
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
