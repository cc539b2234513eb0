"""The one way to time: suites, scripts and the autotuner all measure through these functions.

`measure` times one function, and `compare` times two in alternation. `interleave` takes samples of
any number of sides, and `timed` times a single call. All of them wait for the device after a call.
`measure` and `compare` also separate compilation, choose how many calls make a sample, give an
interval that assumes nothing about the distribution, and leave the caller's arrays alive.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax

from myriad.collector import collector_paused
from myriad.ranges import INT64, Integer, Number, Seconds, Seed, checked, require
from myriad.timing.intervals import MOST, Confidence, median_interval, require_enough
from myriad.timing.subject import Clock, Function, Subject, timed

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


SampleSeconds = Annotated[float, Number(0, 86_400, positive=True)]
Samples = Annotated[int, Integer(1, MOST)]


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
        compile_s: for a jitted function the seconds of `lower().compile()`, which are close to 0 if
            it was compiled before. For any other function, the first call's seconds above the
            median, whatever it compiled, loaded or allocated.
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
        compiled = f"compiled in {_readable(self.compile_s)}"
        return f"{_readable(self.median_s)} ({interval}; {samples}; {compiled})"


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
    carry: bool = False,
    num_samples: Samples = 15,
    min_sample_s: SampleSeconds = 0.01,
    confidence: Confidence = 0.95,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time `fn(*args)`, each call until its result is ready.

    A jitted function may donate arguments, which are gone after one call. By default every call
    gets the same values: an argument that the first call deleted is copied on its device before
    each further call, while the clock is stopped. With `carry=True` a call gets the result of the
    call before, as in a rollout or a training, and the carried value is not copied. The two time
    different things, so the choice is yours. Your own arrays survive either way, so memory must
    hold them and one working copy.

    Args:
        fn: a function, jitted or not, that returns the arrays to wait for, or nothing.
        *args: its positional arguments.
        carry: pass each call's result, or the first item of a tuple, as the next call's first
            argument.
        num_samples: samples to take.
        min_sample_s: the least seconds of a sample. Calls are added until it is reached.
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
    require_enough("num_samples", num_samples, confidence)
    subject = Subject(fn, args, carry=carry, clock=clock)
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
    carry: bool = False,
    num_pairs: Samples = 21,
    min_sample_s: SampleSeconds = 0.01,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time two functions in pairs of samples in random order, so that drift affects both equally.

    If their arguments differ, pass each as `functools.partial(fn, *own_args)`. A partial is
    unwrapped, so that donation and `carry` work as in `measure`.

    Args:
        a: the first side.
        b: the second side.
        *args: positional arguments of both, after those of a partial.
        carry: as in `measure`, for both sides.
        num_pairs: pairs of samples to take.
        min_sample_s: as in `measure`.
        confidence: probability that the interval holds the true median ratio.
        seed: seed of the order within the pairs.
        clock: returns seconds; for tests.

    Raises:
        InvalidArgumentError: as in `measure`.
    """
    require_enough("num_pairs", num_pairs, confidence)
    sides = [Subject(fn, args, carry=carry, clock=clock) for fn in (a, b)]
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
        confidence,
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
    for each in samplers:
        require("every sampler", each, Function)
    order = random.Random(seed)  # noqa: S311  (an order, not a secret)
    samples: list[list[float]] = [[] for _ in samplers]
    start = time.perf_counter()
    with collector_paused():
        for num_rounds in range(most_rounds):
            if num_rounds >= least_rounds and time.perf_counter() - start >= budget_s:
                break
            for side in order.sample(range(len(samplers)), len(samplers)):
                samples[side].append(samplers[side]())
    return samples


def _summary(subject: Subject, samples: Sequence[float], confidence: float) -> Timing:
    median_s = statistics.median(samples)
    low_s, high_s = median_interval(samples, confidence)
    compile_s = subject.compile_s
    if compile_s is None:
        compile_s = max(0.0, subject.first_s - median_s)
    return Timing(
        tuple(samples), subject.calls_per_sample, median_s, low_s, high_s, confidence, compile_s
    )


def _readable(seconds: float) -> str:
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    scale, unit = next((pair for pair in units if seconds >= pair[0]), (1e-9, "ns"))
    return f"{seconds / scale:.3g} {unit}"
