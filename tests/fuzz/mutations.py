"""Seeded mutations of a file's bytes: what a bad disk, a broken download or a careless editor makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_WORDS = (
    b"\0" * 4,
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\x80",
    b"\xff" * 8,
    b"\x01" + b"\0" * 7,
)
_TEXTS = (
    b"99999999999999999999",
    b"-1",
    b"nan",
    b"1e400",
    "²".encode(),
    b"{" * 2000,
    b"[" * 2000,
    b'"',
    b"\n",
    b",",
    b"../",
)


def flip_bit(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def set_byte(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] = rng.choice(_EDGES)


def set_word(content: bytearray, rng: random.Random) -> None:
    """A length or an offset that lies."""
    word, at = rng.choice(_WORDS), rng.randrange(len(content))
    content[at : at + len(word)] = word


def noise(content: bytearray, rng: random.Random) -> None:
    at, size = rng.randrange(len(content)), rng.randint(1, 64)
    content[at : at + size] = rng.randbytes(size)


def cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


def delete(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    del content[at : at + rng.randint(1, max(1, len(content) // 8))]


def repeat(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    content[at:at] = content[at : at + rng.randint(1, max(1, len(content) // 8))]


def insert_text(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    content[at:at] = rng.choice(_TEXTS)


def change_number(content: bytearray, rng: random.Random) -> None:
    """A digit of a number in text, which is how headers declare their sizes; another byte where there is none."""
    digits = [at for at, byte in enumerate(content) if 48 <= byte < 58]
    content[rng.choice(digits or range(len(content)))] = 48 + rng.randrange(10)


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bit, set_byte, set_word, noise, cut, delete, repeat, insert_text, change_number,
)  # fmt: skip


def mutate(content: bytes, rng: random.Random) -> bytes:
    """`content` with one to four mutations, half of them near either end, where headers and directories are."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not out:
            break
        size = min(len(out), 256)
        start = rng.choice((None, None, 0, len(out) - size))
        window = out[:] if start is None else out[start : start + size]
        rng.choice(MUTATIONS)(window, rng)
        out[slice(None) if start is None else slice(start, start + size)] = window
    return bytes(out)


def mutants(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` mutants of a file, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield mutate(content, rng)
