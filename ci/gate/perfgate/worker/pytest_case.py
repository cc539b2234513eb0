"""Run a test that uses pytest-benchmark's fixture as an asv benchmark, in a worker.

A test runs in its own thread up to its call of `benchmark`. There it waits with its fixtures alive,
and its thread times the function as often as the gate asks. Then pytest-benchmark times it once,
and the test runs to its end.
"""

import functools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from asv_runner.benchmarks.time import TimeBenchmark

from .listing import check_runs
from .pytest_suite import Plugin, node_of, run_pytest, why
from .suite import SkippedError

Action = Callable[[], Any]


class TestBenchmark(TimeBenchmark):
    """A test as an asv benchmark. It times the function that the test passes to `benchmark`."""

    def __init__(self, name: str, suite: Path, root: Path, arguments: Sequence[str]):
        super().__init__(name, _not_there_yet, [])
        self._case = Case([*arguments, node_of(name, suite)], root)

    def do_setup(self) -> bool:
        """Run the test up to its benchmark.

        Raises:
            SkippedError: it is skipped.
            RuntimeError: it failed before, or never called `benchmark`.
            RunnerError: pytest itself failed.
        """
        self._case.start()
        if self._case.skipped:
            raise SkippedError(self._case.skipped)
        self.func = self._case.call.function
        self._load_vars()
        # The arguments from a test's own setup are good for one call.
        self.number = 1 if self._case.call.is_for_one else 0
        return False

    def redo_setup(self) -> None:
        """Do nothing: asv would set up a benchmark before each sample, but the test must wait."""

    def do_run(self) -> Any:
        """Time a sample in the test's own thread, because fixtures may be bound to that thread."""
        return self._case.do(self._run_prepared)

    def _run_prepared(self) -> Any:
        if not self._case.call.is_for_one:
            return super().do_run()
        self.func = self._case.call.prepared()
        try:
            return super().do_run()
        finally:
            self._case.call.finish()

    def do_teardown(self) -> None:
        """Let the test run to its end."""
        self._case.end()


def _not_there_yet() -> None:
    """Stand in for the function that the test has not passed yet."""


class Call:
    """The call that a test passes to the fixture, with the arguments of `pedantic`.

    Attributes:
        function: the function to time, with its arguments bound.
        is_for_one: whether the test prepares or ends each call.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
    ):
        self.function = functools.partial(target, *args, **(kwargs or {}))
        self.is_for_one = setup is not None or teardown is not None
        self._setup = setup
        self._teardown = teardown

    def prepared(self) -> Action:
        """Return the function with the arguments of the next call."""
        made = self._setup() if self._setup else None
        if made:
            args, kwargs = made
            self.function = functools.partial(self.function.func, *args, **kwargs)
        return self.function

    def finish(self) -> None:
        """End the last call as the test asks."""
        if self._teardown:
            self._teardown(*self.function.args, **self.function.keywords)


class Case(Plugin):
    """A test in its own thread, which pauses at its benchmark.

    Attributes:
        call: the call that it benchmarks; an empty one until the test gets there.
        skipped: why the test is skipped; empty if it is not.
    """

    def __init__(self, arguments: list[str], root: Path):
        self.call = Call(_not_there_yet)
        self.skipped = ""
        self._arguments = arguments, root
        self._problem = ""
        # None once the test is at its benchmark, or pytest's exit code if it ended before
        self._arrived: Future[int | None] = Future()
        self._actions: queue.SimpleQueue[tuple[Action, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run the test up to its benchmark, or to its end if it is skipped.

        Raises:
            RuntimeError: it failed before, or never called `benchmark`.
            RunnerError: pytest itself failed.
        """
        self._thread.start()
        code = self._arrived.result()
        if code is None or self.skipped:
            return
        if not self._problem:
            self.check(code)
        raise RuntimeError(self._problem or "the test does not call its fixture `benchmark`")

    def do(self, action: Action) -> Any:
        """Run an action in the test's own thread, and return its result."""
        result: Future[Any] = Future()
        self._actions.put((action, result))
        return result.result()

    def end(self) -> None:
        """Let the test run to its end."""
        self._actions.put(None)
        self._thread.join()

    def serve(self, call: Call) -> None:
        """Run the gate's requests in the middle of the test."""
        if self._arrived.done():  # pytest-benchmark refuses a second benchmark in a test
            return
        self.call = call
        self._arrived.set_result(None)
        while (asked := self._actions.get()) is not None:
            action, result = asked
            try:
                result.set_result(action())
            # foreign code may raise anything, which the thread that waits for the result raises
            except BaseException as error:  # noqa: BLE001
                result.set_exception(error)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        outcome: Any = yield
        fixture = None if outcome.excinfo else outcome.get_result()
        if fixturedef.argname == "benchmark" and hasattr(fixture, "pedantic"):
            fixture.__class__ = _timed(type(fixture), self)

    def pytest_runtest_makereport(self, call: Any) -> None:
        if call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception):
            self.skipped = why(call)

    def pytest_exception_interact(self, call: Any) -> None:
        self._problem = self._problem or why(call)

    def _run(self) -> None:
        code = run_pytest(*self._arguments, self)
        if not self._arrived.done():  # otherwise nobody waits for it any more
            self._arrived.set_result(code)


def _timed(kind: Any, case: Case) -> Any:
    """Return a kind of pytest-benchmark's fixture that lets the gate time its function first."""

    class Timed(kind):
        def __call__(self, function_to_benchmark: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self.pedantic(function_to_benchmark, args, kwargs)

        def pedantic(
            self,
            target: Callable[..., Any],
            args: Any = (),
            kwargs: dict[str, Any] | None = None,
            setup: Callable[[], Any] | None = None,
            teardown: Callable[..., Any] | None = None,
            **_: Any,  # the gate decides how often it is called
        ) -> Any:
            check_runs(target)
            case.serve(Call(target, args, kwargs, setup, teardown))
            # pytest-benchmark 4 and older know no teardown
            after = {"teardown": teardown} if teardown else {}
            return super().pedantic(target, args, kwargs, setup, **after)

    return Timed
