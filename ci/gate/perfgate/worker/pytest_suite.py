"""A folder of tests that use pytest-benchmark's fixture, as a suite, for a worker.

A test is named as asv would name it, `module.Class.function[parameters]`.
"""

import contextlib
import importlib.metadata
import inspect
import io
import os
from pathlib import Path
from typing import Any

from ..process import protocol
from . import listing

_FIXTURES = {"benchmark", "benchmark_weave"}
# where pytest looks for its settings, in its order
_SETTINGS = {
    "pytest.ini": "[pytest]",
    ".pytest.ini": "[pytest]",
    "pyproject.toml": "[tool.pytest",
    "tox.ini": "[pytest]",
    "setup.cfg": "[tool:pytest]",
}
# What spreads tests over processes or traces their lines would be measured too. Limits of time need
# the main thread, and the gate has its own.
_WITHOUT = {"xdist": "-n0", "pytest_cov": "--no-cov", "timeout": "--timeout=0"}
_LOOKED = (0, 1, 2, 5)  # 2 where a file is broken, 5 where there is no test


def list_tests(folder: Path, root: Path) -> protocol.Suite:
    """List the tests of a folder that use the fixture, and the files that can't be imported.

    Raises:
        RuntimeError: pytest could not even look for tests.
    """
    collected = _Collected()
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = run_pytest(["--collect-only", "-q", str(folder)], root, collected)
    if code not in _LOOKED:
        said = " ".join(errors.getvalue().split())
        raise RuntimeError(f"pytest could not look for tests, exit code {code}: {said}")
    listed = tuple(_described(item, folder) for item in collected.items)
    broken = {_module_of(file, folder): reason for file, reason in collected.broken.items()}
    return protocol.Suite(listed, broken, listing.loaded_from())


def run_pytest(arguments: list[str], root: Path, plugin: object) -> int:
    """Run pytest from the checkout's root, by the repository's own settings; return its code."""
    import pytest

    words = ["--rootdir", str(root), "-p", "no:cacheprovider", "-s"]
    found = (root / name for name, section in _SETTINGS.items() if _holds(root / name, section))
    settings = next(found, None)
    if settings is not None:
        words += ["-c", str(settings)]
    plugins = {each.name for each in importlib.metadata.entry_points(group="pytest11")}
    if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        words += [flag for plugin, flag in _WITHOUT.items() if plugin in plugins]
    os.chdir(root)
    return int(pytest.main([*words, *arguments], plugins=[plugin]))


def _holds(file: Path, section: str) -> bool:
    return file.is_file() and section in file.read_text(errors="replace")


def node_of(name: str, folder: Path) -> str:
    """Return what pytest calls the test of this name.

    Raises:
        LookupError: no file of the folder holds it.
    """
    function, bracket, parameters = name.partition("[")
    words = function.split(".")
    for number in range(1, len(words)):
        file = folder.joinpath(*words[:number]).with_suffix(".py")
        if file.is_file():
            return "::".join([str(file), *words[number:]]) + bracket + parameters
    raise LookupError(f"{folder.name} has no file with the test {name}")


def why(report: Any) -> str:
    """Return the line of pytest's report that names the error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).splitlines()[0][:300]
    lines = str(report.longrepr).strip().splitlines()
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (errors or lines or ["it failed"])[-1][:300]


class Plugin:
    """What each of our plugins does: pytest-benchmark's mark is known where that is not there."""

    def pytest_configure(self, config: Any) -> None:
        """Declare the mark."""
        config.addinivalue_line("markers", "benchmark(**settings): what pytest-benchmark reads")


class _Collected(Plugin):
    """Keeps the tests that use the fixture, and why files can't be imported."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.broken: dict[Path, str] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        self.items = [
            item for item in session.items if _FIXTURES & {*getattr(item, "fixturenames", ())}
        ]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            # pytest runs in the root, and names files relative to it
            self.broken[Path.cwd() / report.nodeid.partition("::")[0]] = why(report)


def _described(item: Any, folder: Path) -> protocol.Listing:
    function, bracket, parameters = item.nodeid.partition("::")[2].partition("[")
    module = _module_of(item.path, folder).partition(".")[2]
    name = f"{module}.{function.replace('::', '.')}{bracket}{parameters}"
    code = listing.digest(inspect.getsource(item.obj))
    return protocol.Listing(name, "time", "seconds", (), None, None, code)


def _module_of(file: Path, folder: Path) -> str:
    inside = file.resolve().relative_to(folder.resolve().parent)
    return ".".join(inside.with_suffix("").parts)
