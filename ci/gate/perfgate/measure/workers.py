"""Pools of workers, and the one function that sends both sides the same request."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from perfgate.process.channel import ESCAPED, Worker, WorkerError
from perfgate.process.protocol import Request, Skipped
from perfgate.source.sides import Side, Sides
from perfgate.stages import SIDES

Say = Callable[[str], None]
R = TypeVar("R")
SKIPPED_NOW = "it is skipped now, but was not before"


class TimeSpentError(Exception):
    """The run has reached its end, so a worker was not asked or its answer not awaited."""


class WorkerPool:
    """One worker per side, started on its first request and replaced when it dies.

    Use it in a `with` block. Both workers are pinned to `core`, or head's to `head_core` if given.
    No request outlasts `deadline`, which is on the clock of `time.monotonic`.
    """

    def __init__(
        self,
        sides: Sides,
        core: int | None,
        *,
        head_core: int | None = None,
        hash_seed: int = 0,
        deadline: float = math.inf,
    ):
        self.sides = sides
        self.deadline = deadline
        # the seconds that each side's last reply took
        self.answered_s: dict[str, float] = dict.fromkeys(SIDES, 0.0)
        self._sent: dict[str, float] = dict.fromkeys(SIDES, 0.0)
        self.hash_seed = hash_seed
        self.cores = {"base": core, "head": core if head_core is None else head_core}
        self._escaped: dict[str, set[str]] = {side: set() for side in SIDES}
        self._workers: dict[str, Worker] = {}

    def ask(self, side: Side, request: Request[R], timeout_s: float) -> R:
        """Send the worker of `side` a request and return its reply.

        A lost worker is closed, and the next request starts another one.

        Raises:
            WorkerError: it could not answer.
            TimeSpentError: the deadline has passed.
        """
        self.send(side, request)
        return self.receive(side, request, timeout_s)

    def send(self, side: Side, request: Request[Any]) -> None:
        """Send the worker of `side` a request. `receive` waits for its reply."""
        self.check_time()
        self._sent[side.name] = time.monotonic()
        if side.name not in self._workers:
            launch = self.sides.launch(side, core=self.cores[side.name], hash_seed=self.hash_seed)
            self._workers[side.name] = Worker(launch)
        self._workers[side.name].send(request)

    def receive(self, side: Side, request: Request[R], timeout_s: float) -> R:
        """Return the reply to the last request that was sent to `side`."""
        left_s = max(0.0, self.deadline - time.monotonic())
        try:
            reply = self._workers[side.name].receive(request, min(timeout_s, left_s))
        except WorkerError as error:
            if not error.alive:
                self.close(side.name)
            if left_s < timeout_s and time.monotonic() >= self.deadline:
                raise TimeSpentError from None
            raise
        self.answered_s[side.name] = time.monotonic() - self._sent[side.name]
        return reply

    def check_time(self) -> None:
        """Raise a `TimeSpentError` if the deadline has passed."""
        if time.monotonic() >= self.deadline:
            raise TimeSpentError

    @property
    def live(self) -> list[Side]:
        """The sides that have a worker, base first."""
        both = (self.sides.base, self.sides.head)
        return [side for side in both if side.name in self._workers]

    def escapes(self, row: str) -> dict[str, str]:
        """Return the problem, by side, if a forked child escaped from a row's benchmark."""
        return {side: ESCAPED for side, rows in self._escaped.items() if row in rows}

    def close(self, name: str) -> None:
        """End the worker of a side."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()
            self._escaped[name] |= worker.escaped

    def close_all(self) -> None:
        """End every worker."""
        for name in list(self._workers):
            self.close(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()


def ask_sides(
    pools: Mapping[Side, WorkerPool],
    request: Request[R],
    timeout_s: float,
    *,
    at_once: bool = True,
    stop_at_failure: bool = False,
) -> dict[str, R | WorkerError]:
    """Send these sides the same request, and return each reply or the error of its worker.

    Even with `at_once`, sides whose workers share a core are asked one after the other. They would
    disturb each other.

    Args:
        pools: the sides to ask, in this order.
        request: the request. If it names no core, each worker stays on its own core.
        timeout_s: seconds to wait for one reply.
        at_once: send to both, then receive from both.
        stop_at_failure: when asking in turn, don't ask the second side if the first one fails.
    """
    places = [pool.cores[side.name] for side, pool in pools.items()]
    have_cores_of_their_own = None in places or len(set(places)) == len(places)
    groups = [tuple(pools)] if at_once and have_cores_of_their_own else [(side,) for side in pools]
    replies: dict[str, R | WorkerError] = {}
    for group in groups:
        if stop_at_failure and any(map(_is_failure, replies.values())):
            break
        for side in group:
            pool = pools[side]
            core = pool.cores[side.name] if request.core is None else request.core
            pool.send(side, dataclasses.replace(request, core=core))
        for side in group:
            try:
                replies[side.name] = pools[side].receive(side, request, timeout_s)
            except WorkerError as error:
                replies[side.name] = error
    return replies


def _is_failure(reply: object) -> bool:
    return isinstance(reply, (WorkerError, Skipped))
