"""What can happen to a file: each damage is done in place, and says in a word what it was."""

import os
import random
from pathlib import Path

_FLIPPED = 0.75  # of all damages; the others are in equal parts


def damage(path: Path, rng: random.Random, *, pipes: bool = True) -> str:
    """Damage a file, and say how. Without `pipes`, none takes its place."""
    content = path.read_bytes()
    if content and rng.random() < _FLIPPED:
        bit = rng.randrange(8 * len(content))
        path.write_bytes(flipped(content, bit))
        return f"bit {bit} flipped"
    how = rng.choice([name for name in _OTHERS if pipes or name != "a pipe"])
    path.unlink()
    _OTHERS[how](path, content, rng)
    return how


def flipped(content: bytes, bit: int) -> bytes:
    """Return the content with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _cut(path: Path, content: bytes, rng: random.Random) -> None:
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def _random(path: Path, content: bytes, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(len(content) or 8))


def _zeros(path: Path, content: bytes, rng: random.Random) -> None:
    path.write_bytes(bytes(len(content)))


def _longer(path: Path, content: bytes, rng: random.Random) -> None:
    path.write_bytes(content + rng.randbytes(8))


_OTHERS = {
    "cut": _cut,
    "random bytes": _random,
    "zeros": _zeros,
    "bytes added": _longer,
    "emptied": lambda path, content, rng: path.touch(),
    "deleted": lambda path, content, rng: None,
    "a folder": lambda path, content, rng: path.mkdir(),
    "a pipe": lambda path, content, rng: os.mkfifo(path),
    "a link to nothing": lambda path, content, rng: path.symlink_to(f"no-{path.name}"),
    "a link to itself": lambda path, content, rng: path.symlink_to(path.name),
}
