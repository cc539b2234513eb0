"""Which changed files can matter to what a benchmark runs: pages and tests can't, nor can a comment or the layout."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PAGES = (".md", ".rst")
_ASIDE = ("docs", "doc", ".git", ".github", "tests", "test")


def can_matter(path: PurePosixPath, suite: Path) -> bool:
    """Whether a file can change what is run: pages and tests can't, nor the suite, which is head's on both sides."""
    is_aside = path.suffix in _PAGES or path.parts[0] in _ASIDE
    return not is_aside and not path.is_relative_to(suite.as_posix())


def is_same_code(base: Path, head: Path, suite: Path) -> bool:
    """Tell whether two checkouts hold the same code: of what can matter, nothing differs but comments and layout.

    Args:
        base: a checkout's root.
        head: the other's.
        suite: the folder of benchmarks, relative to the roots.
    """
    paths = {*_files(base), *_files(head)}
    return all(_is_same(base / path, head / path) for path in paths if can_matter(path, suite))


def _files(root: Path) -> Iterator[PurePosixPath]:
    for folder, _, names in os.walk(root):
        yield from (PurePosixPath((Path(folder) / name).relative_to(root).as_posix()) for name in names)


def _is_same(before: Path, after: Path) -> bool:
    try:
        texts = before.read_bytes(), after.read_bytes()
    except OSError:
        return False  # new, gone, or a link to somewhere else
    if texts[0] == texts[1]:
        return True
    if before.suffix != ".py":
        return False
    try:
        return ast.dump(ast.parse(texts[0])) == ast.dump(ast.parse(texts[1]))
    except (SyntaxError, ValueError):
        return False
