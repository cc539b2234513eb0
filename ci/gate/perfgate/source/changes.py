"""Find the changed files that can matter to a benchmark. Documentation and comments can't."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PAGES = (".md", ".rst")
_PAGE_FOLDERS = ("docs", "doc", ".github")
_RULES = ("gate.toml", "accepted.toml")
_NO_SUITE = Path("/")  # which no relative path is in
# Tests, the settings of services, and the notes that a changelog is made from.
_IDLE = re.compile(
    r"test/.*|(.*/)?(tests/.*|test_[^/]*\.py|[^/]*_test\.py|conftest\.py)"
    r"|\.circleci/.*|\.[\w-]+\.ya?ml|(azure-pipelines|appveyor)\.yml"
    r"|(changelog|changes|news|newsfragments)/.*\.(md|rst)"
)


def can_matter(path: PurePosixPath, suite: Path) -> bool:
    """Whether a file can change what runs.

    Documentation can't, if it lies in a folder of its own or at the root. A page inside a package
    may be a template, so it can. The suite can't, because both sides run head's. Files that an
    installation leaves in a working tree can't, because nothing reads them there. The gate's own
    files can't, because they only hold rules.
    """
    if path.name in _RULES and path.parent.as_posix() in (".", "ci", suite.parent.as_posix()):
        return False
    if any(part.endswith(".egg-info") or part == "__pycache__" for part in path.parts):
        return False
    return not _is_page(path) and not path.is_relative_to(suite.as_posix())


def can_move(path: PurePosixPath) -> bool:
    """Whether a commit that changes a file can move a benchmark in the results of `asv run`.

    A file of the suite can. asv starts a new series only if a benchmark's own code changes.
    """
    return can_matter(path, _NO_SUITE) and not _IDLE.fullmatch(path.as_posix())


def _is_page(path: PurePosixPath) -> bool:
    return path.parts[0] in _PAGE_FOLDERS or (path.suffix in _PAGES and len(path.parts) == 1)


def changed_code(base: Path, head: Path, suite: Path) -> list[PurePosixPath]:
    """Return the differing files outside of the suite that can matter, in alphabetical order.

    Args:
        base: a checkout's root.
        head: the other checkout's root.
        suite: the folder of benchmarks, relative to the roots.
    """
    return [path for path in changed_python(base, head) if can_matter(path, suite)]


def changed_python(base: Path, head: Path) -> list[PurePosixPath]:
    """Return the files that differ in more than the comments and the layout of Python."""
    return [path for path in changed_files(base, head) if not _is_same(base / path, head / path)]


def nothing_matters(base: Path, head: Path, suite: Path) -> str:
    """Say why two checkouts can't differ in speed, or return nothing if they can.

    This is stricter than `changed_code`, whose arguments it takes: the suite counts, and so does
    `.github`, since somebody who sets up the gate there wants to see it run.
    """
    if not changed_files(base, head):
        return "base and head are the same tree"
    matters = any(
        not _is_page(path) or path.parts[0] == ".github" or path.is_relative_to(suite.as_posix())
        for path in changed_python(base, head)
    )
    return "" if matters else "only documentation or comments differ"


def changed_files(base: Path, head: Path) -> list[PurePosixPath]:
    """Return all files that differ between two folders, in alphabetical order."""
    return sorted(
        path
        for path in {*_files(base), *_files(head)}
        if "__pycache__" not in path.parts and not has_same_bytes(base / path, head / path)
    )


def _files(root: Path) -> Iterator[PurePosixPath]:
    if root.is_file():  # a suite may be one
        yield PurePosixPath()
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (
            PurePosixPath((Path(folder) / name).relative_to(root).as_posix())
            for name in [*names, *links]
            if name != ".git"  # names the folder of a checkout, or of its submodule
        )


def _is_same(before: Path, after: Path) -> bool:
    """Tell whether two files that differ hold the same Python."""
    if before.suffix != ".py" or before.is_symlink() or after.is_symlink():
        return False
    try:
        return ast.dump(ast.parse(before.read_bytes())) == ast.dump(ast.parse(after.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return False


def has_same_bytes(before: Path, after: Path) -> bool:
    """Tell whether two files are equal, or neither exists. A link equals a link to the same."""
    if before.is_symlink() or after.is_symlink():
        return before.is_symlink() and after.is_symlink() and before.readlink() == after.readlink()
    try:
        return before.read_bytes() == after.read_bytes()
    except OSError:
        return not before.exists() and not after.exists()  # otherwise one of them is new or gone
