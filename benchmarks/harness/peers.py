"""Manage peers with conflicting dependencies, each in a virtual environment `.peers/<name>`.

    python -m benchmarks.harness.peers                       list them
    python -m benchmarks.harness.peers install myriad-jax    install one

libraries.toml declares their `requirements`. libraries/__main__.py runs in each of them.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks.harness.registry import DECLARED, Library, SuiteError, known

FOLDER = Path(__file__).resolve().parents[2] / ".peers"
# The file is written last, and lists what was installed. So an interrupted installation, or one of
# other versions, does not count.
_STAMP = "installed.txt"
# The folder of the peer's import path, besides its packages. It holds a link to our suites alone,
# because the repository holds another `myriad`.
_SUITES = "suites"


def declared() -> dict[str, Library]:
    """Return the libraries with a Python of their own, by name."""
    return {name: library for name, library in DECLARED.items() if library.requirements}


def is_installed(name: str) -> bool:
    """Whether the environment of a peer holds what libraries.toml asks for, and our suites."""
    stamp = FOLDER / name / _STAMP
    has_suites = (FOLDER / name / _SUITES / "benchmarks").exists()
    wanted = _stamp_of(declared()[name])
    return has_suites and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted


def how_to_install(name: str) -> str:
    """Return the sentence that says how to install a peer."""
    command = f"python -m benchmarks.harness.peers install {name}"
    return f"`{command}` installs it in its own environment"


def install(name: str) -> None:
    """Make a peer's environment anew.

    Raises:
        SuiteError: no such peer, or the installer failed.
    """
    peer = declared()[known(name, declared(), "peer")]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    for step in (
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", *peer.requirements],
    ):
        if subprocess.run(step, check=False).returncode:
            raise SuiteError(f"{name} could not be installed: `{' '.join(step)}` failed.")
    link_suites(folder)
    (folder / _STAMP).write_text(_stamp_of(peer), encoding="utf-8")


def link_suites(folder: Path) -> None:
    """Let the Python of a peer's environment find our suites, and nothing else of ours."""
    (folder / _SUITES).mkdir()
    (folder / _SUITES / "benchmarks").symlink_to(Path(__file__).parents[1].resolve())


def command(name: str, module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a module of our suites in a peer's Python, and its path."""
    folder = FOLDER / name
    python = str(folder / "bin" / "python")
    return [python, "-P", "-m", module, *arguments], {"PYTHONPATH": str(folder / _SUITES)}


def enter(name: str) -> NoReturn:
    """Replace this process by the peer, in its Python and without our packages."""
    arguments, path = command(name, "benchmarks.libraries", name, "--peer")
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONHOME"}
    os.execve(arguments[0], arguments, inherited | path)  # noqa: S606  (needs no shell)


def _stamp_of(peer: Library) -> str:
    return "\n".join(peer.requirements) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Any failure prints one sentence and gives exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness.peers", description=str(__doc__).split("\n")[0]
    )
    commands = parser.add_subparsers(dest="action")
    commands.add_parser("list", help="list the peers")
    installs = commands.add_parser("install", help="install peers")
    installs.add_argument("names", nargs="+", metavar="PEER", help="the peer to install")
    options = parser.parse_args(argv)
    try:
        for name in getattr(options, "names", ()):
            install(name)
    except SuiteError as error:
        print(error, file=sys.stderr)
        return 2
    for name, peer in declared().items():
        state = "installed" if is_installed(name) else f"not installed: {how_to_install(name)}"
        print(f"{name} ({', '.join(peer.requirements)}): {state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
