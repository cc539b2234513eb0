"""Use a folder of tests with pytest-benchmark's fixture as a suite, in a worker.

Tests are named in asv's way, `module.Class.function[parameters]`.
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
# files in which pytest looks for its settings, in the same order
_SETTINGS = {
    "pytest.ini": "[pytest]",
    ".pytest.ini": "[pytest]",
    "pyproject.toml": "[tool.pytest",
    "tox.ini": "[pytest]",
    "setup.cfg": "[tool:pytest]",
}
# Plugins that spread tests over processes or trace their lines would be measured too. Those for
# timeouts need the main thread, and the gate has its own timeouts.
_WITHOUT = {"xdist": "-n0", "pytest_cov": "--no-cov", "timeout": "--timeout=0"}
_LOOKED = (0, 1, 2, 5)  # 2 means a broken file, and 5 means no tests


def list_tests(folder: Path, root: Path) -> protocol.Suite:
    """List a folder's tests that use the fixture, and the files that can't be imported.

    Raises:
        RuntimeError: pytest could not collect tests.
    """
    collected = _Collected()
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = run_pytest(["--collect-only", "-q", str(folder)], root, collected)
    if code not in _LOOKED:
        said = " ".join(errors.getvalue().split())
        raise RuntimeError(f"pytest could not collect the tests, exit code {code}: {said}")
    listed = tuple(_described(item, folder) for item in collected.items)
    broken = {_module_of(file, folder): reason for file, reason in collected.broken.items()}
    return protocol.Suite(listed, broken, listing.loaded_from())


def run_pytest(arguments: list[str], root: Path, plugin: object) -> int:
    """Run pytest from the checkout's root with the repository's settings. Return its exit code."""
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
    """Return pytest's node ID for the test of this name.

    Raises:
        LookupError: no file in the folder holds the test.
    """
    function, bracket, parameters = name.partition("[")
    words = function.split(".")
    for number in range(1, len(words)):
        file = folder.joinpath(*words[:number]).with_suffix(".py")
        if file.is_file():
            return "::".join([str(file), *words[number:]]) + bracket + parameters
    raise LookupError(f"no file in {folder.name} holds the test {name}")


def why(report: Any) -> str:
    """Return the line of pytest's report that names the error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).splitlines()[0][:300]
    lines = str(report.longrepr).strip().splitlines()
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (errors or lines or ["it failed"])[-1][:300]


class Plugin:
    """The base of the gate's plugins. It declares pytest-benchmark's mark if nothing else does."""

    def pytest_configure(self, config: Any) -> None:
        """Declare the mark."""
        config.addinivalue_line("markers", "benchmark(**settings): settings of pytest-benchmark")


class _Collected(Plugin):
    """Keeps the tests that use the fixture, and the errors of files that can't be imported."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.broken: dict[Path, str] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        self.items = [
            item for item in session.items if _FIXTURES & {*getattr(item, "fixturenames", ())}
        ]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            # pytest runs in the root, so it names files relative to it
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
