"""Find the changed files that can matter to a benchmark. Documentation and comments can't."""

import ast
import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

_PAGES = (".md", ".rst")
_PAGE_FOLDERS = ("docs", "doc", ".github")
_RULES = ("gate.toml", "accepted.toml")
_TESTS = ("tests", "test")
_DIGITS = 32  # length of a digest
_IMPORTS_TESTS = re.compile(r"^\s*(?:from|import)\s[^\n#]*\btests?\b", re.MULTILINE)
_NAMES_TESTS = re.compile(r"[\"'/]tests?[\"'/]")


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


def _is_page(path: PurePosixPath) -> bool:
    return path.parts[0] in _PAGE_FOLDERS or (path.suffix in _PAGES and len(path.parts) == 1)


def is_same_code(base: Path, head: Path, suite: Path) -> bool:
    """Tell whether two checkouts hold the same code, up to comments and layout.

    Tests don't matter unless other code imports them or the suite names one of their files.

    Args:
        base: a checkout's root.
        head: the other checkout's root.
        suite: the folder of benchmarks, relative to the roots.
    """
    return not changed_code(base, head, suite)


def changed_code(base: Path, head: Path, suite: Path) -> list[PurePosixPath]:
    """Return the differing files outside of the suite that can matter, in alphabetical order.

    The arguments are those of `is_same_code`.
    """
    paths = {*_files(base), *_files(head)}
    aside = _set_aside(paths, head, suite)
    return sorted(
        path
        for path in paths
        if path.parts[0] not in aside
        and can_matter(path, suite)
        and not _is_same(base / path, head / path)
    )


def only_pages_differ(base: Path, head: Path, suite: Path) -> bool:
    """Tell whether two checkouts differ in documentation only.

    This is stricter than `is_same_code`: comments, tests and the suite count as differences. So
    does `.github`, because somebody who sets up the gate there wants to see it run.

    The arguments are those of `is_same_code`.
    """
    different = changed_files(base, head)
    return bool(different) and all(
        _is_page(path) and path.parts[0] != ".github" and not path.is_relative_to(suite.as_posix())
        for path in different
    )


def changed_files(base: Path, head: Path) -> list[PurePosixPath]:
    """Return all files that differ between two checkouts, in alphabetical order."""
    return sorted(
        path
        for path in {*_files(base), *_files(head)}
        if "__pycache__" not in path.parts and not _has_same_bytes(base / path, head / path)
    )


def framework(root: Path, suite: Path) -> str:
    """Return a hash of everything in a checkout except the text of its Python files.

    It covers the suite, the names of all Python files that can matter, and the contents of all
    other files that can. While it stays the same, a benchmark can only import different files if
    one of the files that it imported before has changed.

    Args:
        root: the checkout's root.
        suite: the folder of benchmarks, relative to it.
    """
    paths = set(_files(root))
    aside = _set_aside(paths, root, suite)
    parts = hashlib.sha256()
    for path in sorted(paths):
        in_suite = path.is_relative_to(suite.as_posix()) and "__pycache__" not in path.parts
        is_test = path.parts[0] in aside and path.suffix == ".py"
        if not in_suite and (is_test or not can_matter(path, suite)):
            continue
        parts.update(os.fsencode(path) + b"\0")
        if (root / path).is_symlink():
            parts.update(os.fsencode((root / path).readlink()))
        if (path.suffix != ".py" or in_suite) and (root / path).is_file():
            parts.update(hashlib.sha256((root / path).read_bytes()).digest())
    return parts.hexdigest()


def digest(file: Path) -> str:
    """Return a hash of a file's content, or nothing if it is not a file or can't be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGITS] if file.is_file() else ""
    except OSError:
        return ""


def changed_lines(base: Path, head: Path) -> dict[PurePosixPath, list[str]]:
    """Return the lines that differ between the files of two folders, each with its + or -.

    Comments and layout of Python files don't count as differences, and neither do Python's own
    caches. The folders may also be two files, or not exist.
    """
    changes = {}
    for path in sorted({*_files_or_self(base), *_files_or_self(head)}):
        if "__pycache__" not in path.parts and not _is_same(base / path, head / path):
            before = _lines(base / path)
            after = _lines(head / path)
            lines = difflib.unified_diff(before, after, n=0, lineterm="")
            changes[path] = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return changes


def _files_or_self(root: Path) -> Iterator[PurePosixPath]:
    return iter([PurePosixPath()]) if root.is_file() else _files(root)


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.is_file() else []


def _set_aside(paths: Iterable[PurePosixPath], root: Path, suite: Path) -> tuple[str, ...]:
    """Return the folders of tests if no other code needs their files."""
    return () if any(_needs_tests(root, path, suite) for path in paths) else _TESTS


def _needs_tests(root: Path, path: PurePosixPath, suite: Path) -> bool:
    if path.parts[0] in _TESTS or path.suffix != ".py" or not (root / path).is_file():
        return False
    text = (root / path).read_text(errors="replace")
    in_suite = path.is_relative_to(suite.as_posix())
    return _IMPORTS_TESTS.search(text) is not None or (
        in_suite and _NAMES_TESTS.search(text) is not None
    )


def _files(root: Path) -> Iterator[PurePosixPath]:
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (
            PurePosixPath((Path(folder) / name).relative_to(root).as_posix())
            for name in [*names, *links]
            if name != ".git"  # names the folder of a checkout, or of its submodule
        )


def _is_same(before: Path, after: Path) -> bool:
    if _has_same_bytes(before, after):
        return True
    if before.suffix != ".py" or before.is_symlink() or after.is_symlink():
        return False
    try:
        return ast.dump(ast.parse(before.read_bytes())) == ast.dump(ast.parse(after.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return False


def _has_same_bytes(before: Path, after: Path) -> bool:
    if before.is_symlink() or after.is_symlink():
        return before.is_symlink() and after.is_symlink() and before.readlink() == after.readlink()
    try:
        return before.read_bytes() == after.read_bytes()
    except OSError:
        return not before.exists() and not after.exists()  # otherwise one of them is new or gone


def only_grew(base: Path, head: Path) -> bool:
    """Tell whether head's folder of benchmarks holds everything in the base's unchanged.

    It may hold more: new files, and new statements at the top level of a module.
    """
    return all(_is_held(base / name, head / name) for name in _names(base))


def _names(suite: Path) -> set[Path]:
    files = (path for path in suite.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(suite) for path in files}


def _is_held(before: Path, after: Path) -> bool:
    if not after.is_file():
        return False
    old = before.read_bytes()
    new = after.read_bytes()
    if old == new or before.suffix != ".py":
        return old == new
    try:
        statements = {ast.dump(each) for each in ast.parse(new).body}
        return all(ast.dump(each) in statements for each in ast.parse(old).body)
    except (SyntaxError, ValueError):
        return False
