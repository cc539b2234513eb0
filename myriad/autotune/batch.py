"""Measure which number of rows in a gradient step makes this machine learn fastest."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from myriad.engine.devices import bytes_of
from myriad.engine.memory import available_bytes, most_bytes, readable_bytes, stated_bytes
from myriad.errors import InvalidArgumentError
from myriad.host import release_freed_memory
from myriad.timing import Subject, interleave, median_interval, require_enough
from myriad.training.compiled import Halves, shortage_named
from myriad.training.config import TrainingConfig

SIZES = tuple(2**power for power in range(7, 15))  # 128 to 16,384 rows
# A batch with this share of the best batch's rows/s is good enough, since smaller batches learn
# more from the same rows. Measured again in another process, the choice should still reach 95%, and
# two runs differ by 2%.
NEAR_BEST = 0.97
# Minibatches and steps of a rollout while an on-policy agent is measured.
_MINIBATCHES, _ROLLOUT_STEPS = 4, 64
_ROUNDS = 9
_SAMPLE_S = 0.02
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class BatchRate:
    """The result of a batch size.

    Attributes:
        batch_size: rows of a gradient step.
        rows_per_s: rows/s that were learned from; None if the size was refused.
        low: the lower end of the 95% interval.
        high: the upper end.
        memory_bytes: the most bytes of arrays that the measurement holds, without what the compiler
            takes.
        refused: why it did not run; empty if it ran.
    """

    batch_size: int
    rows_per_s: float | None
    low: float | None
    high: float | None
    memory_bytes: int
    refused: str = ""


def measure_arms(
    arms: Mapping[str, TrainingConfig],
    sizes: Sequence[int] = SIZES,
    *,
    rounds: int = _ROUNDS,
    memory_limit: int | None = None,
    on_size: Callable[[str], None] = lambda line: None,
) -> dict[str, list[BatchRate]]:
    """Time the gradient steps of trainings with batches of several sizes, all in alternation.

    The times include the other work of an update, such as computing advantages.

    Args:
        arms: trainings by the name of their difference, such as another dtype.
        sizes: rows of a gradient step.
        rounds: alternations.
        memory_limit: bytes that may be used; by default what the machine has left.
        on_size: called with a line for every size before it is timed.

    Raises:
        InvalidArgumentError: the agent takes no gradient steps that can be measured apart, or there
            are too few rounds for an interval.
    """
    # Both raise errors before anything is compiled.
    for config in arms.values():
        with_batch(config, sizes[0])
    require_enough("rounds", rounds, _CONFIDENCE)
    subjects: dict[tuple[str, int], Subject] = {}
    rows: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], BatchRate] = {}
    for arm, size in itertools.product(arms, sizes):
        each = arm, size
        resized = with_batch(arms[arm], size)
        halves = Halves(resized)
        _, added = stated_bytes(halves.learn.lower(*halves.shapes).compile())
        release_freed_memory()
        # Learning consumes a copy of its arguments.
        needed = most_bytes(2 * bytes_of(halves.shapes) + added)
        room, refused = available_bytes(memory_limit), ""
        if needed > room:
            free = readable_bytes(max(0, room))
            refused = f"needs {readable_bytes(needed)}, and {free} are free"
        found[each] = BatchRate(size, None, None, None, needed, refused)
        of_arm = f", {arm}" if arm else ""
        on_size(f"{size:>7,} rows{of_arm}: {refused or readable_bytes(needed)}")
        if refused:
            continue
        with shortage_named():
            subjects[each] = Subject(halves.learn, halves.arguments())
            subjects[each].prepare()
            subjects[each].calibrate(_SAMPLE_S)
        options = resized.agent_options
        by_epochs = options.get("num_minibatches", 0) * options.get("num_epochs", 0)
        rows[each] = size * options.get("gradient_steps", by_epochs)
    samplers = [subject.sample_s for subject in subjects.values()]
    samples = interleave(samplers, least_rounds=rounds, most_rounds=rounds)
    for each, seconds in zip(subjects, samples, strict=True):
        rates = [rows[each] / sample for sample in seconds]
        low, high = median_interval(rates, _CONFIDENCE)
        found[each] = dataclasses.replace(
            found[each], rows_per_s=statistics.median(rates), low=low, high=high
        )
    return {arm: [found[arm, size] for size in sizes] for arm in arms}


def smallest_near_best(rates: Sequence[BatchRate]) -> BatchRate:
    """Return the smallest batch that learns from at least 97% of the best one's rows/s.

    Raises:
        InvalidArgumentError: none of them fits into memory.
    """
    best = max(rate.rows_per_s or 0.0 for rate in rates)
    if not best:
        says = f"No batch fits into memory: one of {rates[0].batch_size:,} rows {rates[0].refused}."
        raise InvalidArgumentError(says)
    near = [rate for rate in rates if (rate.rows_per_s or 0.0) >= NEAR_BEST * best]
    return min(near, key=lambda rate: rate.batch_size)


def with_batch(config: TrainingConfig, size: int) -> TrainingConfig:
    """Return a training whose gradient steps take `size` rows, only for measurements.

    An on-policy agent gets as many environments as its minibatches need.

    Raises:
        InvalidArgumentError: the agent takes no gradient steps.
    """
    if config.batch_size is not None:
        return config.changed(batch_size=size)
    if "num_minibatches" not in config.agent_options:
        raise InvalidArgumentError(f"{config.agent} learns from no batches to tune.")
    steps = math.gcd(_ROLLOUT_STEPS, _MINIBATCHES * size)
    follow = ("steps_per_env", "total_steps", "scan_chunk_size", "eval_frequency", "batch_size")
    changes: dict[str, Any] = dict.fromkeys(follow)
    changes |= {"num_envs": _MINIBATCHES * size // steps, "rollout_steps": steps}
    return config.changed(**changes | {"agent.num_minibatches": _MINIBATCHES})
