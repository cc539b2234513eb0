"""The two halves of an update, collecting and learning, each in its own program.

No clock can run inside a compiled chunk, so the halves are measured apart.
"""

import functools
from typing import Any

import jax
import numpy as np

from myriad.random import make_key
from myriad.timing import Comparison, compare
from myriad.training.config import TrainingConfig
from myriad.training.loop import LearningLoop
from myriad.xla import result_shapes

_NUM_PAIRS = 7


class Halves:
    """The halves of a training's updates on one device, with their arguments.

    Args:
        config: the training.

    Attributes:
        init: maps a key to a `TrainState`, jitted.
        collect: maps a `TrainState` to the next one and the experience to learn from, jitted.
        learn: maps a `TrainState` and that experience to the next state, jitted. Both donate the
            state, as a training does, since otherwise a replay buffer would be copied.

    Raises:
        InvalidArgumentError: the agent has no `collect` and `learn`.
    """

    def __init__(self, config: TrainingConfig):
        learner = config.learner.scheduled(config.num_updates)
        loop = LearningLoop(config.environment, learner, config.num_envs)
        self.collect: Any = jax.jit(loop.collect, donate_argnums=0)
        self.learn: Any = jax.jit(loop.learn, donate_argnums=0)
        self.init: Any = jax.jit(loop.init)
        self._run: Any = jax.jit(loop.run, donate_argnums=0)
        self._seed = config.seed
        # A replay buffer must be filled before an agent learns from it.
        self._before = learner.first_learning_update(config.num_envs) - 1
        self.shapes()  # Raises now, before anything takes long.

    def shapes(self) -> tuple[Any, Any]:
        """Return the shapes of a state and of the experience that the agent learns from."""
        return result_shapes(self._traced_collect())

    def traced(self) -> list[jax.stages.Traced]:
        """Return the traced programs of `arguments` and then of `learn`."""
        collect = self._traced_collect()
        state, experience = result_shapes(collect)
        fill = [self._run.trace(state, *self._fill())] if self._before else []
        first = self.init.trace(make_key(self._seed))
        return [first, *fill, collect, self.learn.trace(state, experience)]

    def arguments(self) -> tuple[Any, Any]:
        """Return a state in which the agent learns, and the experience that it learns from."""
        state = self.init(make_key(self._seed))
        if self._before:
            state, _ = self._run(state, *self._fill())
        return self.collect(state)

    def _traced_collect(self) -> jax.stages.Traced:
        return self.collect.trace(result_shapes(self.init.trace(make_key(self._seed))))

    def _fill(self) -> tuple[np.int32, np.bool_]:
        """Return the other arguments of `run`, with the updates before the first that learns."""
        return np.int32(self._before), np.bool_(True)  # noqa: FBT003


def measure_halves(config: TrainingConfig) -> Comparison:
    """Time collecting (`a`) and learning (`b`) in alternation on one device.

    Raises:
        InvalidArgumentError: the agent has no `collect` and `learn`.
    """
    halves = Halves(config)
    state, experience = halves.arguments()
    return compare(
        functools.partial(halves.collect, state),
        functools.partial(halves.learn, state, experience),
        num_pairs=_NUM_PAIRS,
        min_sample_s=0.02,
    )


def collect_share(halves: Comparison) -> float:
    """Return the share of an update that collecting takes, from 0 to 1."""
    return 1 / (1 + halves.b_over_a)
