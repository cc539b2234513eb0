"""The one way to time: suites, scripts and the autotuner all measure through these functions.

`measure` times one function, `compare` two in alternation. Both wait for the device after every
call, keep compilation apart, choose how many calls make a sample, state an interval that assumes
nothing about the distribution, and leave the caller's arrays alive.
"""

import contextlib
import functools
import gc
import inspect
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any

import jax

from myriad.errors import InvalidArgumentError

Function = Callable[..., Any]
Clock = Callable[[], float]

# Donated arguments are renewed beside the clock. Where that takes far longer than the call, a
# sample stops growing at this many times `min_sample_s`: a gigabyte copied for each call of a
# microsecond would go on for an hour.
_MAX_OVERHEAD = 10


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one function.

    Attributes:
        samples_s: each sample's seconds divided by its calls, in the order they were taken.
        calls_per_sample: calls in one sample.
        median_s: the median of the samples.
        low_s: lower end of the interval that holds the true median with probability `confidence`.
        high_s: its upper end.
        confidence: see `median_interval`.
        compile_s: for a jitted function the seconds of `lower().compile()`, next to nothing where
            it was compiled before; for any other what its first call took above the median,
            whatever it compiled, loaded or allocated.
    """

    samples_s: tuple[float, ...]
    calls_per_sample: int
    median_s: float
    low_s: float
    high_s: float
    confidence: float
    compile_s: float

    def __str__(self) -> str:
        interval = f"{_readable(self.low_s)} to {_readable(self.high_s)}"
        samples = f"{len(self.samples_s)} samples of {self.calls_per_sample} calls"
        return f"{_readable(self.median_s)} ({interval}; {samples}; compiled in {_readable(self.compile_s)})"


@dataclass(frozen=True)
class Comparison:
    """Seconds of `b` over seconds of `a`, pair by pair: above 1, `a` is the faster.

    The interval speaks of this process. Processes differ in luck (addresses, cores), so a claim
    about two versions of a program needs pairs from several launches.

    Attributes:
        a: the one side's own timing.
        b: the other's.
        pair_ratios: one ratio per pair, in the order they were taken.
        b_over_a: the median of the ratios.
        b_over_a_low: lower end of the interval that holds the true median ratio with probability
            `confidence`.
        b_over_a_high: its upper end.
        confidence: see `median_interval`.
    """

    a: Timing
    b: Timing
    pair_ratios: tuple[float, ...]
    b_over_a: float
    b_over_a_low: float
    b_over_a_high: float
    confidence: float

    def __str__(self) -> str:
        interval = f"{self.b_over_a_low:.3g} to {self.b_over_a_high:.3g}"
        return f"b takes {self.b_over_a:.3g} times as long as a ({interval}; {len(self.pair_ratios)} pairs)"


def block_until_ready(tree: Any) -> Any:
    """Wait for every array in a pytree and return the tree; leaves that are no device arrays pass through."""
    return jax.block_until_ready(tree)


def warmup(fn: Function, *args: Any) -> Any:
    """Call `fn` once, so that it is compiled, and return its result when that is ready; arrays it donates survive.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> double = jax.jit(lambda x: 2 * x, donate_argnums=0)
        >>> x = jnp.ones(3)
        >>> warmup(double, x).tolist(), x.tolist()
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    """
    return _Subject(fn, args).prepare()


def measure(
    fn: Function,
    *args: Any,
    carry: bool = False,
    num_samples: int = 15,
    min_sample_s: float = 0.01,
    confidence: float = 0.95,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time `fn(*args)`, each call up to the moment that its result is ready.

    A jitted function may donate arguments, and then what it was given is gone after one call. Two
    ways lead on, and since they time different things the choice is the caller's. By default every
    call sees the same values: an argument that the first call deleted is copied on its device
    before each further call, with the clock stopped. With `carry=True` a call sees its
    predecessor's result, as in a rollout or a training, and what is carried is not copied again.
    Either way the caller's own arrays survive: memory must hold them beside one working copy.

    Args:
        fn: a function, jitted or not, that returns what is to be waited for, or nothing.
        *args: its positional arguments.
        carry: pass each call's result, or the first item of a tuple, as the next call's first
            argument.
        num_samples: samples to take.
        min_sample_s: the least seconds in a sample; calls are added until it is reached.
        confidence: probability that the interval holds the true median.
        clock: returns seconds; for tests.

    Raises:
        InvalidArgumentError: an option is out of range, an array was deleted before, or `carry`
            doesn't fit `fn`.

    Example:
        >>> timing = measure(sorted, range(1000), num_samples=7, min_sample_s=0.001)
        >>> timing.low_s <= timing.median_s <= timing.high_s
        True
    """
    _check("num_samples", num_samples, min_sample_s, confidence)
    subject = _Subject(fn, args, carry=carry, clock=clock)
    subject.prepare()
    with _no_garbage_collection():
        subject.calibrate(min_sample_s)
        samples = [subject.sample_s() for _ in range(num_samples)]
    return subject.timing(samples, confidence)


def compare(
    a: Function,
    b: Function,
    *args: Any,
    carry: bool = False,
    num_pairs: int = 21,
    min_sample_s: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time two functions in pairs of samples whose order is drawn pair by pair, so that drift strikes both alike.

    Where their arguments differ, pass each as `functools.partial(fn, *own_args)`: it is looked
    through, so that donation and `carry` work as in `measure`.

    Args:
        a: the one side.
        b: the other.
        *args: positional arguments of both, behind those of a partial.
        carry: as in `measure`, for both sides.
        num_pairs: pairs of samples to take.
        min_sample_s: as in `measure`.
        confidence: probability that the interval holds the true median ratio.
        seed: of the order within the pairs.
        clock: returns seconds; for tests.

    Raises:
        InvalidArgumentError: as in `measure`.
    """
    _check("num_pairs", num_pairs, min_sample_s, confidence)
    sides = [_Subject(fn, args, carry=carry, clock=clock) for fn in (a, b)]
    for side in sides:
        side.prepare()
    order = random.Random(seed)  # noqa: S311  (an order, not a secret)
    samples: tuple[list[float], list[float]] = ([], [])
    with _no_garbage_collection():
        for side in sides:
            side.calibrate(min_sample_s)
        for _ in range(num_pairs):
            for index in order.sample((0, 1), 2):
                samples[index].append(sides[index].sample_s())
    ratios = tuple(b_s / a_s for a_s, b_s in zip(*samples, strict=True))
    timing_a, timing_b = (
        side.timing(taken, confidence) for side, taken in zip(sides, samples, strict=True)
    )
    low, high = median_interval(ratios, confidence)
    return Comparison(timing_a, timing_b, ratios, statistics.median(ratios), low, high, confidence)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return two of the samples that enclose the true median with at least the probability `confidence`.

    Whatever distribution n independent samples come from, their k-th smallest lies above its median
    only if fewer than k of n fair coins show heads, and likewise for the k-th largest (Conover,
    Practical Nonparametric Statistics, 3.2). k is the largest that is safe.

    Raises:
        InvalidArgumentError: there are too few samples for any interval of this confidence.

    Example:
        >>> median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
        (1.0, 6.0)
    """
    _check_number("samples", len(samples), confidence)
    ordered, rank = sorted(samples), _rank(len(samples), confidence)
    return ordered[rank - 1], ordered[-rank]


def _rank(num_samples: int, confidence: float) -> int:
    """Return the largest k with `2 P(Binomial(num_samples, 1/2) < k) <= 1 - confidence`; 0 where there is none."""
    allowed = (1 - Fraction(confidence)) * 2**num_samples / 2
    rank, below = 0, 1
    while below <= allowed:
        rank += 1
        below += math.comb(num_samples, rank)
    return rank


class _Subject:
    """A function under the clock, callable again and again whatever it donates."""

    def __init__(
        self,
        fn: Function,
        args: Sequence[Any],
        *,
        carry: bool = False,
        clock: Clock = time.perf_counter,
    ):
        if isinstance(fn, functools.partial) and not fn.keywords:
            fn, args = fn.func, (*fn.args, *args)
        if not callable(fn):
            raise InvalidArgumentError(f"fn must be a function, but got {fn!r}.")
        if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
            raise InvalidArgumentError(
                f"fn must do its work when called, but {fn!r} only prepares it; call it in fn."
            )
        if carry and not args:
            raise InvalidArgumentError(
                "carry=True needs a first argument to carry, but none was given."
            )
        if any(map(_any_deleted, args)):
            raise InvalidArgumentError(
                "args must hold live arrays, but one was deleted or donated before."
            )
        self._fn, self._args, self._carry, self._clock = fn, list(args), carry, clock
        self._donated: set[int] = set()  # indices into args
        self._waits = True
        self._next_first: Function = _itself
        self._compile_s: float | None = None
        self._first_s = 0.0
        self._calls_per_sample = 1

    def prepare(self) -> Any:
        """Compile, make the first call, and learn from it what is donated and whether there is anything to wait for."""
        if self._may_donate():
            self._donated = {index for index, arg in enumerate(self._args) if _arrays(arg)}
        args = self._renewed_args()
        start = self._clock()
        result = jax.block_until_ready(self._fn(*args))
        self._first_s = self._clock() - start
        self._donated = {index for index in self._donated if _any_deleted(args[index])}
        self._waits = any(hasattr(leaf, "block_until_ready") for leaf in jax.tree.leaves(result))
        if self._carry:
            self._next_first = _find_carry(self._args[0], result)
            self._args[0] = self._next_first(result)
            self._donated.discard(0)
        return result

    def calibrate(self, min_sample_s: float) -> None:
        """Add calls to the sample until it lasts `min_sample_s`."""
        if self._carry:
            # the first to see a result: its sharding or weak types may differ, and compile again
            self._call_s()
        while True:
            start = self._clock()
            seconds = self._run_s()
            if seconds >= min_sample_s or self._clock() - start >= _MAX_OVERHEAD * min_sample_s:
                return
            # A fifth more than needed, as the next sample may run faster; tenfold at most, as a
            # short one says little.
            growth = min(10.0, 1.2 * min_sample_s / seconds) if seconds > 0 else 10.0
            self._calls_per_sample = math.ceil(self._calls_per_sample * growth)

    def sample_s(self) -> float:
        """Take one sample; return its seconds per call."""
        return self._run_s() / self._calls_per_sample

    def timing(self, samples: Sequence[float], confidence: float) -> Timing:
        """Sum up the samples taken."""
        median_s = statistics.median(samples)
        low_s, high_s = median_interval(samples, confidence)
        compile_s = (
            max(0.0, self._first_s - median_s) if self._compile_s is None else self._compile_s
        )
        return Timing(
            tuple(samples), self._calls_per_sample, median_s, low_s, high_s, confidence, compile_s
        )

    def _may_donate(self) -> bool:
        """Ask a jitted function, which compiles it; of any other nothing is known before its first call."""
        if not isinstance(self._fn, jax.stages.Wrapped):
            return True
        start = self._clock()
        lowered = self._fn.lower(*self._args)
        lowered.compile()  # kept by JAX: a call of the function finds it and compiles nothing
        self._compile_s = self._clock() - start
        return any(info.donated for info in jax.tree.leaves(lowered.args_info))

    def _run_s(self) -> float:
        """Time the calls of one sample; no result outlives its call, so memory holds one at a time."""
        num_calls, fn, args, clock = self._calls_per_sample, self._fn, self._args, self._clock
        if self._carry or self._donated:
            return sum(self._call_s() for _ in range(num_calls))
        # One read of the clock per sample, and no waiting for nothing: either would weigh on calls
        # of nanoseconds.
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
        args = self._renewed_args()
        start = self._clock()
        result = jax.block_until_ready(self._fn(*args))
        seconds = self._clock() - start
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
    """Return what finds the next first argument in a result: the whole of it, or the first item of a tuple."""
    wanted, found = jax.tree.structure(first), jax.tree.structure(result)
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
    """Copy the arrays of a pytree where they lie: `copy` keeps sharding, weak type and commitment to a device."""
    return jax.block_until_ready(
        jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, tree)
    )


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector out of the samples, as timeit does."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _readable(seconds: float) -> str:
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    scale, unit = next((pair for pair in units if seconds >= pair[0]), (1e-9, "ns"))
    return f"{seconds / scale:.3g} {unit}"


def _check_number(name: str, number: int, confidence: float) -> None:
    """Hold the number of samples to the least that give any interval."""
    if not 0 < confidence < 1:
        raise InvalidArgumentError(
            f"confidence must lie between 0 and 1, both excluded, but got {confidence}."
        )
    if not _rank(number, confidence):
        least = next(count for count in itertools.count(2) if _rank(count, confidence))
        raise InvalidArgumentError(
            f"{name} must be at least {least} for confidence {confidence}, but got {number}."
        )


def _check(name: str, number: int, min_sample_s: float, confidence: float) -> None:
    _check_number(name, number, confidence)
    if not 0 < min_sample_s < math.inf:
        raise InvalidArgumentError(
            f"min_sample_s must be above 0 and finite, but got {min_sample_s}."
        )
