"""Keep asv's results on a branch of their own. Standard library only.

    perfgate store fetch    copy the branch's files into asv's folder of results
    perfgate store push     add new files of that folder to the branch

The branch holds JSON files and tables (*.csv). A result on the branch never changes. Two kinds of
file follow the newest run, because asv rewrites them each time: the list of benchmarks and the
facts about machines. `--rewrite` names more such files. The environment variable STORE_TOKEN
authorises against an https remote.
"""

import argparse
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.history.asv_results import add_results, find_results
from perfgate.options import Parser, guarded
from perfgate.source.git import git

BRANCH = "benchmark-results"
_REWRITTEN = ("benchmarks.json", "machine.json")
_SUFFIXES = (".json", ".csv")
_MAX_BYTES = 2_000_000
_ATTEMPTS = 3
_IDENTITY = ("-c", "user.name=benchmarks", "-c", "user.email=benchmarks@localhost")


def main(argv: Sequence[str]) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(lambda: _run(_parse(argv)), "stopped; a push is complete or has not happened")


def _run(options: argparse.Namespace) -> int:
    names = git("remote", cwd=Path()).split() if Path(".git").exists() else []
    remote = options.remote
    if remote in names:
        remote = git("remote", "get-url", remote, cwd=Path())
    _authorise(remote)
    command = fetch if options.command == "fetch" else push
    results, _ = find_results(options)
    print(command(results, remote, options.branch, options.rewrite))
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("perfgate store", "Keep asv's results on a branch of their own.")
    parser.add_argument(
        "command",
        choices=["fetch", "push"],
        help="fetch: copy the branch's files here; push: add new files to the branch",
    )
    add_results(parser)
    parser.add_argument(
        "--remote", default="origin", help="name or address of the remote (default: %(default)s)"
    )
    parser.add_argument(
        "--branch", default=BRANCH, help="branch that keeps the results (default: %(default)s)"
    )
    parser.add_argument(
        "--rewrite",
        action="append",
        default=[],
        metavar="PATTERN",
        help="replace these files when they change, such as 'parts/*.json'; repeatable",
    )
    return parser.parse_args(argv)


def _authorise(remote: str) -> None:
    """Hand git the token through its environment, since every process can read arguments."""
    token = os.environ.pop("STORE_TOKEN", None)
    if token and remote.startswith("https://"):
        word = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        os.environ |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{remote}.extraheader",
            "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {word}",
        }


def fetch(results: Path, remote: str, branch: str, rewrite: Sequence[str] = ()) -> str:
    """Copy the branch's files into `results`. Files that are already there stay."""
    with tempfile.TemporaryDirectory(prefix="store-") as name:
        stored = _checked_out(remote, branch, Path(name) / "branch")
        count = sum(_add(stored, results, file, rewrite) for file in _files(stored))
    return f"copied {count} files from {branch}"


def push(results: Path, remote: str, branch: str, rewrite: Sequence[str] = ()) -> str:
    """Commit new files of `results` to the branch. Try again if another run pushed first."""
    if not results.is_dir():
        return f"there is no {results}, so there is nothing to push"
    _check(results)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(UsageError):
            return _push_once(results, remote, branch, rewrite)
    return _push_once(results, remote, branch, rewrite)


def _push_once(results: Path, remote: str, branch: str, rewrite: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="store-") as name:
        stored = _checked_out(remote, branch, Path(name) / "branch")
        count = sum(_add(results, stored, file, rewrite) for file in _files(results))
        if not count:
            return f"{branch} already has every file"
        git("add", "--all", cwd=stored)
        message = f"Add {count} files of results"
        git(*_IDENTITY, "commit", "--quiet", "--message", message, cwd=stored)
        git("push", "--quiet", remote, f"HEAD:refs/heads/{branch}", cwd=stored)
    return f"pushed {count} files to {branch}"


def _check(results: Path) -> None:
    for file in _files(results):
        size = (results / file).stat().st_size
        if size > _MAX_BYTES:
            raise UsageError(
                f"{file} has {size:,} bytes; the branch takes files of at most {_MAX_BYTES:,}."
            )


def _checked_out(remote: str, branch: str, place: Path) -> Path:
    """Return a clone at the branch's newest commit, or with an empty history if there is none."""
    place.mkdir()
    git("init", "--quiet", "--initial-branch", branch, cwd=place)
    if git("ls-remote", "--heads", remote, f"refs/heads/{branch}", cwd=place):
        git("fetch", "--quiet", "--depth", "1", remote, f"refs/heads/{branch}", cwd=place)
        git("reset", "--quiet", "--hard", "FETCH_HEAD", cwd=place)
    return place


def _files(folder: Path) -> Iterator[Path]:
    """Yield the JSON files and the tables, relative to `folder`."""
    for file in sorted(each for each in folder.rglob("*") if each.suffix in _SUFFIXES):
        name = file.relative_to(folder)
        if ".git" not in name.parts and file.is_file() and not file.is_symlink():
            yield name


def _add(source: Path, target: Path, file: Path, rewrite: Sequence[str]) -> bool:
    """Copy one file unless the branch has it. Return whether anything changed."""
    new = target / file
    is_rewritten = any(file.match(pattern) for pattern in (*_REWRITTEN, *rewrite))
    if new.is_file() and (not is_rewritten or new.read_bytes() == (source / file).read_bytes()):
        return False
    new.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / file, new)
    return True
