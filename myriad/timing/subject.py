"""A timed function that can be called again and again, even if it donates arguments."""

import functools
import inspect
import math
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.ranges import checked

Function = Callable[..., Any]
Clock = Callable[[], float]

# Donated arguments are copied while the clock is stopped. If copying takes far longer than the
# call, a sample stops growing at this many times `min_sample_s`. Otherwise copying a gigabyte for
# each call of a microsecond would take an hour.
_MAX_OVERHEAD = 10


@checked
def timed(fn: Function, *args: Any, clock: Clock = time.perf_counter) -> tuple[Any, float]:
    """Call `fn(*args)` once. Return its result, when that is ready, and the seconds that it took.

    Donated arguments are gone afterwards, and a call that compiles includes the compiler's time.
    """
    start = clock()
    result = jax.block_until_ready(fn(*args))
    return result, clock() - start


class Subject:
    """A function, its arguments, and what the first call showed about both.

    Args:
        fn: as in `measure`.
        args: as in `measure`.
        carry: as in `measure`.
        clock: returns seconds; for tests.

    Attributes:
        calls_per_sample: calls in one sample, once `calibrate` has been called.
        first_s: seconds of the first call, once `prepare` has been called.
        compile_s: seconds that compiling took before the first call; None if `fn` is not jitted,
            since then they are unknown.

    Raises:
        InvalidArgumentError: `fn` is not a function that does its work when called, an array of
            `args` was deleted before, or there is nothing to carry.
    """

    def __init__(
        self,
        fn: Function,
        args: Sequence[Any],
        *,
        carry: bool = False,
        clock: Clock = time.perf_counter,
    ):
        if isinstance(fn, functools.partial) and not fn.keywords:
            args = (*fn.args, *args)
            fn = fn.func
        if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
            raise InvalidArgumentError(
                "fn", f"must do its work when called, but {fn!r} only prepares it; call it in fn."
            )
        if carry and not args:
            raise InvalidArgumentError(
                "carry=True needs a first argument to carry, but none was given."
            )
        if any(map(_any_deleted, args)):
            raise InvalidArgumentError(
                "args", "must hold live arrays, but one was deleted or donated before."
            )
        self.calls_per_sample = 1
        self.first_s = 0.0
        self.compile_s: float | None = None
        self._fn = fn
        self._args = list(args)
        self._carry = carry
        self._clock = clock
        self._donated: set[int] = set()  # Indices into `args`.
        self._waits = True
        self._next_first: Function = _itself

    def prepare(self) -> Any:
        """Compile, make the first call and return its result.

        The call shows what is donated, and whether there is anything to wait for.
        """
        if self._may_donate():
            # Copy all arguments once. The call shows which of the copies it deletes.
            self._donated = {index for index, arg in enumerate(self._args) if _arrays(arg)}
        args = self._renewed_args()
        result, self.first_s = timed(self._fn, *args, clock=self._clock)
        self._donated = {index for index in self._donated if _any_deleted(args[index])}
        self._waits = any(hasattr(leaf, "block_until_ready") for leaf in jax.tree.leaves(result))
        if self._carry:
            self._next_first = _find_carry(self._args[0], result)
            self._args[0] = self._next_first(result)
            # Nobody else uses a result, so it may be donated without a copy.
            self._donated.discard(0)
        return result

    def calibrate(self, min_sample_s: float) -> None:
        """Add calls to the sample until it lasts `min_sample_s`."""
        if self._carry:
            # The second call is the first to get a result, whose sharding or weak types may differ
            # from the caller's arrays. Then it compiles again.
            self._call_s()
        while True:
            start = self._clock()
            seconds = self._run_s()
            if seconds >= min_sample_s or self._clock() - start >= _MAX_OVERHEAD * min_sample_s:
                return
            # Aim for a fifth more than needed, since the next sample may run faster. Grow at most
            # tenfold, since a short sample says little.
            growth = min(10.0, 1.2 * min_sample_s / seconds) if seconds > 0 else 10.0
            self.calls_per_sample = math.ceil(self.calls_per_sample * growth)

    def sample_s(self) -> float:
        """Take one sample; return its seconds per call."""
        return self._run_s() / self.calls_per_sample

    def _may_donate(self) -> bool:
        """Ask a jitted function, which compiles it. Any other may donate until its first call."""
        if not isinstance(self._fn, jax.stages.Wrapped):
            return True
        start = self._clock()
        lowered = self._fn.lower(*self._args)
        lowered.compile()  # JAX caches this, so that calling the function compiles nothing.
        self.compile_s = self._clock() - start
        return any(info.donated for info in jax.tree.leaves(lowered.args_info))

    def _run_s(self) -> float:
        """Time the calls of one sample. No result outlives its call, so memory holds one."""
        num_calls = self.calls_per_sample
        if self._carry or self._donated:
            return sum(self._call_s() for _ in range(num_calls))
        fn = self._fn
        args = self._args
        clock = self._clock
        # Read the clock once per sample, and don't wait if there is nothing to wait for. Either
        # would distort calls of nanoseconds.
        start = clock()
        if self._waits:
            for _ in range(num_calls):
                jax.block_until_ready(fn(*args))
        else:
            for _ in range(num_calls):
                fn(*args)
        return clock() - start

    def _call_s(self) -> float:
        """Time one call, its arguments made ready before and carried on after."""
        result, seconds = timed(self._fn, *self._renewed_args(), clock=self._clock)
        if self._carry:
            self._args[0] = self._next_first(result)
        return seconds

    def _renewed_args(self) -> list[Any]:
        """Return the arguments of one call, with a copy of each that it may delete."""
        return [
            _copied(arg) if index in self._donated else arg for index, arg in enumerate(self._args)
        ]


def _itself(result: Any) -> Any:
    return result


def _find_carry(first: Any, result: Any) -> Function:
    """Return a function that picks the next first argument: the result, or its first item."""
    wanted = jax.tree.structure(first)
    found = jax.tree.structure(result)
    if found == wanted:
        return _itself
    if isinstance(result, tuple) and result and jax.tree.structure(result[0]) == wanted:
        return itemgetter(0)
    raise InvalidArgumentError(
        f"carry=True needs a result like the first argument, {wanted}, but got {found}."
    )


def _arrays(tree: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def _any_deleted(tree: Any) -> bool:
    return any(array.is_deleted() for array in _arrays(tree))


def _copied(tree: Any) -> Any:
    """Copy the arrays of a pytree on their devices."""
    # `copy` keeps sharding, weak type and commitment to a device, so the copy compiles nothing new.
    return jax.block_until_ready(
        jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, tree)
    )
