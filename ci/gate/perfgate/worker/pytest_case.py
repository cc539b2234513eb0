"""Run a test that uses pytest-benchmark's fixture as an asv benchmark, in a worker.

A test runs in its own thread up to its call of `benchmark`. There it waits with its fixtures alive,
and its thread times the function as often as the gate asks. Then the test runs to its end. pytest
hooks replace the fixture, so pytest-benchmark need not be installed.
"""

import functools
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asv_runner.benchmarks.time import TimeBenchmark

from .pytest_suite import Plugin, node_of, run_pytest, why

Action = Callable[[], Any]


class TestBenchmark(TimeBenchmark):
    """A test as an asv benchmark. It times the function that the test passes to `benchmark`."""

    def __init__(self, name: str, folder: Path, root: Path):
        super().__init__(name, _not_there_yet, [])
        self._case = Case(node_of(name, folder), root)

    def do_setup(self) -> bool:
        """Run the test up to its benchmark, and return whether it is skipped.

        Raises:
            RuntimeError: it failed before, or never called `benchmark`.
        """
        self._case.start()
        self.func = self._case.call.function
        self._load_vars()
        # The arguments from a test's own setup are good for one call.
        self.number = 1 if self._case.call.setup else 0
        return self._case.is_skipped

    def redo_setup(self) -> None:
        """Do nothing: asv would set up a benchmark before each sample, but the test must wait."""

    def do_run(self) -> Any:
        """Time a sample in the test's own thread, because fixtures may be bound to that thread."""
        return self._case.do(self._run_prepared)

    def _run_prepared(self) -> Any:
        if self._case.call.setup:
            self._case.call.prepare()
            self.func = self._case.call.function
        return super().do_run()

    def do_teardown(self) -> None:
        """Let the test run to its end."""
        self._case.end()


def _not_there_yet() -> None:
    """Stand in for the function that the test has not passed yet."""


class Call:
    """The call that a test passes to the fixture.

    Attributes:
        function: the function to time, with its arguments bound.
        setup: makes new arguments for each call; None if the arguments stay the same.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
    ):
        self.function: Action = functools.partial(target, *args, **(kwargs or {}))
        self.setup = setup
        self._target = target

    def prepare(self) -> None:
        """Make the arguments of the next call, if the test has a setup."""
        made = self.setup() if self.setup else None
        if made is not None:
            args, kwargs = made
            self.function = functools.partial(self._target, *args, **kwargs)


class Case:
    """A test in its own thread, which pauses at its benchmark.

    Attributes:
        call: the call that it benchmarks; an empty one until the test gets there.
        is_skipped: whether the test is skipped.
    """

    def __init__(self, node: str, root: Path):
        self.call = Call(_not_there_yet)
        self.is_skipped = False
        self._arguments = [node], root
        self._is_there = False
        self._problem = "the test does not call its fixture `benchmark`"
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run the test up to its benchmark, or to its end if it is skipped.

        Raises:
            RuntimeError: it failed before, or never called `benchmark`.
        """
        self._thread.start()
        self._received()
        if not self._is_there and not self.is_skipped:
            raise RuntimeError(self._problem)

    def do(self, action: Action) -> Any:
        """Run an action in the test's own thread, and return its result."""
        self._actions.put(action)
        return self._received()

    def end(self) -> None:
        """Let the test run to its end."""
        if self._is_there:
            self._actions.put(None)
        self._thread.join()

    def serve(self, call: Call) -> Any:
        """Run the gate's requests in the middle of the test, then return the call's result."""
        if self._is_there:  # only the first benchmark of a test is timed
            return call.function()
        self.call = call
        self._is_there = True
        call.prepare()
        self._results.put((None, None))
        while (action := self._actions.get()) is not None:
            self._results.put(_outcome(action))
        call.prepare()
        return call.function()

    def note(self, report: Any) -> None:
        """Store whether the test is skipped, or why it has failed."""
        self.is_skipped |= report.skipped
        if report.failed:
            self._problem = why(report)

    def _run(self) -> None:
        result = _outcome(lambda: run_pytest(*self._arguments, _plugin(self)))
        if not self._is_there:  # otherwise nobody waits for it any more
            self._results.put(result)

    def _received(self) -> Any:
        result, error = self._results.get()
        if error is not None:
            raise error
        return result


def _outcome(action: Action) -> tuple[Any, BaseException | None]:
    """Return an action's result or exception. The thread that asked for it raises that again."""
    try:
        return action(), None
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
        return None, error


class Fixture:
    """The fixture `benchmark`, with the same interface as pytest-benchmark's."""

    def __init__(self, case: Case):
        self.enabled = True
        self.disabled = False
        self.extra_info: dict[str, Any] = {}
        self.group: str | None = None
        self.stats = None
        self._case = case

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Benchmark a function with these arguments."""
        return self._case.serve(Call(function, args, kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **counts: Any,
    ) -> Any:
        """Benchmark a function. The gate decides how often it is called."""
        if counts.pop("teardown", None) is not None:
            raise RuntimeError("perfgate does not follow the teardown of benchmark.pedantic")
        return self._case.serve(Call(target, tuple(args), kwargs, setup))

    def weave(self, *_: Any, **__: Any) -> None:
        """Refuse to time a function by patching it."""
        raise RuntimeError("perfgate can't time woven functions; call benchmark(function) instead")

    patch = weave


def _plugin(case: Case) -> object:
    import pytest

    class StandIn(Plugin):
        """Gives a test the gate's fixture, with or without pytest-benchmark installed."""

        @pytest.fixture(name="benchmark")
        def stand_in(self) -> None:
            """Define the fixture's name in case nothing else does."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
            if fixturedef.argname not in ("benchmark", "benchmark_weave"):
                return None
            fixture = Fixture(case)
            fixturedef.cached_result = (fixture, fixturedef.cache_key(request), None)
            return fixture

        def pytest_runtest_logreport(self, report: Any) -> None:
            case.note(report)

        def pytest_collectreport(self, report: Any) -> None:
            case.note(report)

    return StandIn()
