"""Run git."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from perfgate.errors import UsageError

WORKING_TREE = "working tree"  # the head to judge if no commit is named


def git(*arguments: str, cwd: Path) -> str:
    """Run git and return what it prints.

    Raises:
        UsageError: git refused, or is not installed.
    """
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            # Inside a git hook these variables override the folder.
            env={
                name: value
                for name, value in os.environ.items()
                if name not in ("GIT_DIR", "GIT_INDEX_FILE")
            },
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            "git is not installed; the gate compares two commits and needs it."
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"git {' '.join(arguments[:3])} failed: {reason}")
    return done.stdout.strip()


def list_files(*arguments: str, cwd: Path) -> list[PurePosixPath]:
    """Return the paths that `git ls-files` lists with these arguments, relative to `cwd`."""
    listed = git("ls-files", "-z", *arguments, cwd=cwd)
    return [PurePosixPath(name) for name in listed.split("\0") if name]


def submodules(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, name and commit of each submodule in a working tree's index."""
    if not (root / ".gitmodules").is_file():
        return
    table = ("config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    names = {}
    for entry in filter(None, git(*table, cwd=root).split("\0")):
        key, _, path = entry.partition("\n")
        names[path] = key.removeprefix("submodule.").removesuffix(".path")
    for entry in git("ls-files", "--stage", "-z", cwd=root).split("\0"):
        described, _, path = entry.partition("\t")
        if described.startswith("160000 ") and path in names:
            yield Path(path), names[path], described.split()[1]


def commit_of(ref: str, root: Path) -> str:
    """Return the full hash of a commit that the repository has."""
    try:
        return git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", cwd=root
        )
    except UsageError:
        raise UsageError(
            f"{ref!r} is not a commit of this repository; fetch it first, or give another one."
        ) from None


def merge_base(base: str, head: str, root: Path) -> str:
    """Return the last common ancestor, so that newer commits on the base branch don't count."""
    try:
        return git("merge-base", base, head, cwd=root)
    except UsageError:
        raise UsageError(
            f"{base[:12]} and {head[:12]} have no common ancestor here; "
            "in a shallow clone run `git fetch --unshallow`."
        ) from None
