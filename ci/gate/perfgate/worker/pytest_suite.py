"""Use a folder or a file of tests with pytest-benchmark's fixture as a suite, in a worker.

Tests are named in asv's way, `module.Class.function[parameters]`.
"""

import contextlib
import importlib.metadata
import importlib.util
import inspect
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..process import protocol
from . import listing

# pytest-benchmark is not imported here: pytest warns of a plugin that it has not loaded itself.
if importlib.util.find_spec("pytest_benchmark") is None:
    raise listing.RunnerError(
        f"{sys.executable} has no pytest-benchmark; run `pip install pytest-benchmark` for it."
    )

import pytest

# Plugins that spread tests over processes or trace their lines would be measured too. Those for
# timeouts need the main thread, and the gate has its own timeouts.
_WITHOUT = {"xdist": "-n0", "pytest_cov": "--no-cov", "timeout": "--timeout=0"}
_RAN = (0, 1, 5)  # 1 means that a test failed, and 5 that there is none


def list_tests(suite: Path, root: Path, arguments: Sequence[str]) -> protocol.Suite:
    """List the tests that use the fixture, and the files that can't be imported.

    Raises:
        RunnerError: pytest could not collect tests.
    """
    if not suite.exists():  # the base has no such file
        return protocol.Suite((), {}, listing.loaded_from())
    collected = _Collected()
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = run_pytest([*arguments, "--collect-only", "-q", str(suite)], root, collected)
    if not collected.broken:
        collected.check(code, " ".join(errors.getvalue().split()))
    listed = tuple(_described(item, suite) for item in collected.items)
    broken = {_module_of(file, suite): reason for file, reason in collected.broken.items()}
    return protocol.Suite(listed, broken, listing.loaded_from())


def run_pytest(arguments: list[str], root: Path, plugin: "Plugin") -> int:
    """Run pytest from the checkout's root with the repository's settings. Return its exit code."""
    # a cache of its own, so that `--last-failed` in the settings leaves out nothing
    words = ["--rootdir", str(root), "-o", f"cache_dir={Path.cwd() / 'pytest_cache'}", "-s"]
    plugins = {each.name for each in importlib.metadata.entry_points(group="pytest11")}
    if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        off = {word.rpartition("no:")[2] for word in arguments if "no:" in word}
        plugins -= off | {f"pytest_{name}" for name in off}  # `-p no:cov` is meant for pytest_cov
        words += [flag for plugin, flag in _WITHOUT.items() if plugin in plugins]
    # A gate that a test of xdist starts hands this on, and pytest-benchmark would warn of xdist.
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    try:
        os.chdir(root)
        return int(pytest.main([*arguments, *words], plugins=[plugin]))
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything at the end
        plugin.note(error)
        return pytest.ExitCode.INTERNAL_ERROR


def node_of(name: str, suite: Path) -> str:
    """Return pytest's node ID for the test of this name.

    Raises:
        LookupError: no file of the suite holds the test.
    """
    folder = suite if suite.is_dir() else suite.parent
    function, bracket, parameters = name.partition("[")
    words = function.split(".")
    for number in range(1, len(words)):
        file = folder.joinpath(*words[:number]).with_suffix(".py")
        if file.is_file():
            return "::".join([str(file), *words[number:]]) + bracket + parameters
    raise LookupError(f"no file in {suite.name} holds the test {name}")


def why(call: Any) -> str:
    """Return the exception of a call of pytest's as a sentence.

    If a file can't be imported, that is the cause of pytest's own exception.
    """
    error = call.excinfo.value
    return listing.sentence(error.__cause__ or error)


class Plugin:
    """The base of the gate's plugins. It ignores the repository's options for pytest-benchmark."""

    said = ""

    def note(self, error: BaseException) -> None:
        """Store the first error with which pytest itself ended."""
        self.said = self.said or listing.sentence(error)

    def check(self, code: int, printed: str = "") -> None:
        """Check that pytest has run.

        Raises:
            RunnerError: it has not, by its exit code.
        """
        if code not in _RAN:
            raise listing.RunnerError(f"pytest ended with exit code {code}: {self.said or printed}")

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        self._parser = parser

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Put the options back to their defaults: they may skip, save or compare benchmarks."""
        for name, value in vars(self._parser.parse([])).items():
            if name.startswith("benchmark_"):
                setattr(config.option, name, value)

    def pytest_internalerror(self, excinfo: Any) -> None:
        self.note(excinfo.value)

    pytest_keyboard_interrupt = pytest_internalerror  # also of `pytest.exit`

    @pytest.hookimpl(hookwrapper=True)
    def pytest_cmdline_main(self) -> Iterator[None]:
        outcome: Any = yield
        if outcome.excinfo is not None:  # a usage error
            self.note(outcome.excinfo[1])


class _Collected(Plugin):
    """Keeps the tests that use the fixture, and the errors of files that can't be imported."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.broken: dict[Path, str] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        self.items = [
            item for item in session.items if "benchmark" in getattr(item, "fixturenames", ())
        ]

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self.broken[node.path] = why(call)


def _described(item: Any, suite: Path) -> protocol.Listing:
    function, bracket, parameters = item.nodeid.partition("::")[2].partition("[")
    module = _module_of(item.path, suite)
    if suite.is_dir():
        module = module.partition(".")[2]
    name = f"{module}.{function.replace('::', '.')}{bracket}{parameters}"
    return protocol.Listing(name, "time", "seconds", (), None, None, inspect.getsource(item.obj))


def _module_of(file: Path, suite: Path) -> str:
    """Return the name of a module. It begins with the folder's name, unless the suite is a file."""
    inside = file.resolve().relative_to(suite.resolve().parent)
    return ".".join(inside.with_suffix("").parts)
