"""The one way to time: suites, scripts and the autotuner all measure through these functions.

`measure` times one function, and `compare` times two in alternation. `interleave` takes samples of
any number of sides, and `timed` times a single call. All of them wait for the device after a call.
`measure` and `compare` also separate compilation, choose how many calls make a sample, give an
interval that assumes nothing about the distribution, and leave the caller's arrays alive.
"""

import functools
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import Annotated, Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.host import collector_paused
from myriad.ranges import HOST, INT64, Integer, Number, Seconds, Seed, checked

__all__ = [
    "Comparison",
    "Timing",
    "block_until_ready",
    "collector_paused",
    "compare",
    "interleave",
    "measure",
    "median_interval",
    "timed",
    "warmup",
]

# The most samples. More would take minutes in exact integers.
MOST = 100_000
Confidence = Annotated[float, Number(1e-6, 1 - 1e-6)]
SampleSeconds = Annotated[float, Number(0, 86_400, positive=True)]
Samples = Annotated[int, Integer(1, MOST)]
Function = Callable[..., Any]

# Donated arguments are copied while the clock is stopped. If copying takes far longer than the
# call, a sample stops growing at this many times `min_sample_s`. Otherwise copying a gigabyte for
# each call of a microsecond would take an hour.
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
        compile_s: for a jitted function the seconds of `lower().compile()`, which are close to 0 if
            it was compiled before. For any other function, the first call's seconds above the
            median, whatever it compiled, loaded or allocated.
    """

    samples_s: tuple[float, ...]
    calls_per_sample: int
    median_s: float
    low_s: float
    high_s: float
    compile_s: float


@dataclass(frozen=True)
class Comparison:
    """Seconds of `b` over seconds of `a`, pair by pair. Above 1, `a` is faster.

    The interval is about this process. Processes differ by chance (addresses, cores), so a claim
    about two versions of a program needs pairs from several launches.

    Attributes:
        a: the timing of the first side.
        b: the timing of the second side.
        pair_ratios: one ratio per pair, in the order they were taken.
        b_over_a: the median of the ratios.
        b_over_a_low: lower end of the interval that holds the true median ratio with probability
            `confidence`.
        b_over_a_high: its upper end.
    """

    a: Timing
    b: Timing
    pair_ratios: tuple[float, ...]
    b_over_a: float
    b_over_a_low: float
    b_over_a_high: float

    def __str__(self) -> str:
        interval = f"{self.b_over_a_low:.3g} to {self.b_over_a_high:.3g}"
        pairs = f"{len(self.pair_ratios)} pairs"
        return f"b takes {self.b_over_a:.3g} times as long as a ({interval}; {pairs})"


def block_until_ready(tree: Any) -> Any:
    """Wait for every array in a pytree and return the tree. Other leaves pass through."""
    return jax.block_until_ready(tree)


@checked
def warmup(fn: Function, *args: Any) -> Any:
    """Call `fn` once, so that it is compiled, and return its result when that is ready.

    Arrays that it donates survive.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> double = jax.jit(lambda x: 2 * x, donate_argnums=0)
        >>> x = jnp.ones(3)
        >>> warmup(double, x).tolist(), x.tolist()
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    """
    return Subject(fn, args).prepare()


@checked
def measure(
    fn: Function,
    *args: Any,
    num_samples: Samples = 15,
    min_sample_s: SampleSeconds = 0.01,
    confidence: Confidence = 0.95,
) -> Timing:
    """Time `fn(*args)`, each call until its result is ready.

    A jitted function may donate arguments, which are gone after one call. Every call gets the same
    values: an argument that the first call deleted is copied on its device before each further
    call, while the clock is stopped. Your own arrays survive, so memory must hold them and one
    working copy. To go on from the result of the call before, as a rollout does, pass a function
    without arguments that keeps its state.

    Args:
        fn: a function, jitted or not, that returns the arrays to wait for, or nothing.
        *args: its positional arguments.
        num_samples: samples to take.
        min_sample_s: the least seconds of a sample. Calls are added until it is reached.
        confidence: probability that the interval holds the true median.

    Raises:
        InvalidArgumentError: an option is out of range, or an array was deleted before.

    Example:
        >>> timing = measure(sorted, range(1000), num_samples=7, min_sample_s=0.001)
        >>> timing.low_s <= timing.median_s <= timing.high_s
        True
    """
    require_enough("num_samples", num_samples, confidence)
    subject = Subject(fn, args)
    subject.prepare()
    with collector_paused():
        subject.calibrate(min_sample_s)
        samples = [subject.sample_s() for _ in range(num_samples)]
    return _summary(subject, samples, confidence)


@checked
def compare(
    a: Function,
    b: Function,
    *args: Any,
    num_pairs: Samples = 21,
    min_sample_s: SampleSeconds = 0.01,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
) -> Comparison:
    """Time two functions in pairs of samples in random order, so that drift affects both equally.

    If their arguments differ, pass each as `functools.partial(fn, *own_args)`. A partial is
    unwrapped, so that donation works as in `measure`.

    Args:
        a: the first side.
        b: the second side.
        *args: positional arguments of both, after those of a partial.
        num_pairs: pairs of samples to take.
        min_sample_s: as in `measure`.
        confidence: probability that the interval holds the true median ratio.
        seed: seed of the order within the pairs.

    Raises:
        InvalidArgumentError: as in `measure`.
    """
    require_enough("num_pairs", num_pairs, confidence)
    sides = [Subject(fn, args) for fn in (a, b)]
    for side in sides:
        side.prepare()
    with collector_paused():
        for side in sides:
            side.calibrate(min_sample_s)
        samplers = [side.sample_s for side in sides]
        a_s, b_s = interleave(samplers, least_rounds=num_pairs, most_rounds=num_pairs, seed=seed)
    ratios = tuple(of_b / of_a for of_a, of_b in zip(a_s, b_s, strict=True))
    low, high = median_interval(ratios, confidence)
    return Comparison(
        _summary(sides[0], a_s, confidence),
        _summary(sides[1], b_s, confidence),
        ratios,
        statistics.median(ratios),
        low,
        high,
    )


@checked
def interleave(
    samplers: Sequence[Callable[[], float]],
    *,
    least_rounds: Annotated[int, Integer(0, INT64)],
    most_rounds: Annotated[int, Integer(0, INT64)],
    budget_s: Seconds = math.inf,
    seed: Seed = 0,
) -> list[list[float]]:
    """Take a sample of every side in each round, in a new random order, so that drift cancels.

    Samples of one round belong together. Compare sides by their ratios round by round.

    Args:
        samplers: one per side. A call takes one sample and returns its seconds.
        least_rounds: rounds that are taken however long they last.
        most_rounds: the most rounds.
        budget_s: seconds after which no further round begins, once `least_rounds` are taken.
        seed: seed of the orders.

    Returns:
        for each side its samples, one per round.
    """
    order = random.Random(seed)  # noqa: S311  (an order, not a secret)
    samples: list[list[float]] = [[] for _ in samplers]
    start = perf_counter()
    with collector_paused():
        for num_rounds in range(most_rounds):
            if num_rounds >= least_rounds and perf_counter() - start >= budget_s:
                break
            for side in order.sample(range(len(samplers)), len(samplers)):
                samples[side].append(samplers[side]())
    return samples


def _summary(subject: "Subject", samples: Sequence[float], confidence: float) -> Timing:
    median_s = statistics.median(samples)
    low_s, high_s = median_interval(samples, confidence)
    compile_s = subject.compile_s
    if compile_s is None:
        compile_s = max(0.0, subject.first_s - median_s)
    return Timing(tuple(samples), subject.calls_per_sample, median_s, low_s, high_s, compile_s)


@checked
def timed(fn: Function, *args: Any) -> tuple[Any, float]:
    """Call `fn(*args)` once. Return its result, when that is ready, and the seconds that it took.

    Donated arguments are gone afterwards, and a call that compiles includes the compiler's time.
    """
    start = perf_counter()
    result = jax.block_until_ready(fn(*args))
    return result, perf_counter() - start


class Subject:
    """A function, its arguments as `measure` takes them, and what the first call showed of both.

    Attributes:
        calls_per_sample: calls in one sample, once `calibrate` has been called.
        first_s: seconds of the first call, once `prepare` has been called.
        compile_s: seconds that compiling took before the first call; None if `fn` is not jitted,
            since then they are unknown.

    Raises:
        InvalidArgumentError: an array of `args` was deleted before.
    """

    def __init__(self, fn: Function, args: Sequence[Any]):
        if isinstance(fn, functools.partial) and not fn.keywords:
            args = (*fn.args, *args)
            fn = fn.func
        if any(map(_any_deleted, args)):
            raise InvalidArgumentError("args", "must hold live arrays, none deleted or donated.")
        self.calls_per_sample = 1
        self.first_s = 0.0
        self.compile_s: float | None = None
        self._fn = fn
        self._args = args
        self._donated: set[int] = set()  # Indices into `args`.
        self._waits = True

    def prepare(self) -> Any:
        """Compile, make the first call and return its result.

        The call shows what is donated, and whether there is anything to wait for.
        """
        if self._may_donate():
            # Copy all arguments once. The call shows which of the copies it deletes.
            self._donated = {index for index, arg in enumerate(self._args) if _arrays(arg)}
        args = self._renewed_args()
        result, self.first_s = timed(self._fn, *args)
        self._donated = {index for index in self._donated if _any_deleted(args[index])}
        self._waits = any(hasattr(leaf, "block_until_ready") for leaf in jax.tree.leaves(result))
        return result

    def calibrate(self, min_sample_s: float) -> None:
        """Add calls to the sample until it lasts `min_sample_s`."""
        while True:
            start = perf_counter()
            seconds = self._run_s()
            if seconds >= min_sample_s or perf_counter() - start >= _MAX_OVERHEAD * min_sample_s:
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
        start = perf_counter()
        lowered = self._fn.lower(*self._args)
        lowered.compile()  # JAX caches this, so that calling the function compiles nothing.
        self.compile_s = perf_counter() - start
        return any(info.donated for info in jax.tree.leaves(lowered.args_info))

    def _run_s(self) -> float:
        """Time the calls of one sample. No result outlives its call, so memory holds one."""
        num_calls = self.calls_per_sample
        if self._donated:
            return sum(timed(self._fn, *self._renewed_args())[1] for _ in range(num_calls))
        fn = self._fn
        args = self._args
        # Read the clock once per sample, and don't wait if there is nothing to wait for. Either
        # would distort calls of nanoseconds.
        start = perf_counter()
        if self._waits:
            for _ in range(num_calls):
                jax.block_until_ready(fn(*args))
        else:
            for _ in range(num_calls):
                fn(*args)
        return perf_counter() - start

    def _renewed_args(self) -> list[Any]:
        """Return the arguments of one call, with a copy of each that it may delete."""
        return [
            _copied(arg) if index in self._donated else arg for index, arg in enumerate(self._args)
        ]


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


@checked
def median_interval(samples: Iterable[float], confidence: Confidence = 0.95) -> tuple[float, float]:
    """Return two of the samples that enclose the true median with at least this probability.

    The k-th smallest of n independent samples lies above the true median only if fewer than k of
    n fair coins show heads, whatever the distribution is. The same holds for the k-th largest
    (Conover, Practical Nonparametric Statistics, 3.2). The interval takes the largest such k.

    Args:
        samples: independent samples, in any order.
        confidence: the least probability that the interval holds the true median.

    Raises:
        InvalidArgumentError: there are too few samples for any interval of this confidence, or too
            many, or one is NaN, -infinity or not a number.

    Example:
        >>> median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
        (1.0, 6.0)
    """
    ordered = list(samples)
    Number(*HOST, infinity=True, items=(0, MOST)).require("samples", ordered)
    require_enough("samples", len(ordered), confidence)
    ordered.sort()
    rank = _rank(len(ordered), confidence)
    return ordered[rank - 1], ordered[-rank]


def mean_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95% interval of the mean; NaNs for fewer than two samples.

    Args:
        samples: independent samples, such as the returns of trainings with different seeds.

    Example:
        >>> low, high = mean_interval([1.0, 2.0, 3.0])
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    if len(samples) < 2:
        return math.nan, math.nan
    # scipy.stats would take a second to import.
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(samples) - 1, 0.975))
    half = quantile * statistics.stdev(samples) / math.sqrt(len(samples))
    mean = statistics.fmean(samples)
    return mean - half, mean + half


def require_enough(name: str, num_samples: int, confidence: float) -> None:
    """Raise InvalidArgumentError, about `name`, if there are too few samples for an interval."""
    if not _rank(num_samples, confidence):
        least = next(count for count in itertools.count(2) if _rank(count, confidence))
        rule = f"must be at least {least} for confidence {confidence}"
        raise InvalidArgumentError(name, rule, num_samples)


def _rank(num_samples: int, confidence: float) -> int:
    """Return the largest k with `2 P(Binomial(n, 1/2) < k) <= 1 - confidence`, or 0."""
    # Use exact integers, since with a thousand samples a float loses the difference that decides.
    allowed = (1 - Fraction(confidence)) * 2**num_samples / 2
    rank = 0
    below = term = 1  # `term` is the binomial coefficient of `rank`.
    while below <= allowed:
        term = term * (num_samples - rank) // (rank + 1)
        rank += 1
        below += term
    return rank
