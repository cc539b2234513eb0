"""Films of the agent during a training: one episode after every few evaluations."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from myriad.agents.controller import ControllerLearner
from myriad.errors import InvalidArgumentError
from myriad.files import write_errors_explained
from myriad.training.callbacks import Callback, Run
from myriad.training.config import TrainingConfig

# The most frames of a film. Of a longer episode it shows the beginning.
_NUM_STEPS = 200


class Films(Callback):
    """Records an episode of the greedy agent as a GIF after every few evaluations.

    Args:
        config: the training.
        folder: where to save the films. It is made with the first one.
    """

    def __init__(self, config: TrainingConfig, folder: Path):
        self._config = config
        self._folder = folder

    def on_evaluation(self, run: Run) -> None:
        """Record an episode if it is time to.

        Raises:
            InvalidArgumentError: the film can't be written.
        """
        from myriad.rendering.video import record

        if run.evaluations % run.config.film_every:
            return
        learner = self._config.learner
        controller: Any = _Remembered(learner, run.agent_state)
        if isinstance(learner, ControllerLearner):
            controller = learner.controller
        with write_errors_explained(self._folder):
            self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{run.update}.gif"
        env, seed = self._config.environment, run.config.seed
        record(env, controller, path, num_steps=_NUM_STEPS, seed=seed)


@dataclasses.dataclass(frozen=True)
class _Remembered:
    """The greedy agent as a controller whose memory holds the agent's state.

    So the state is an argument of the compiled program and not a constant in it. The program is
    then the same for every film, and the compilation cache holds it.
    """

    learner: Any
    state: Any

    def first_memory(self) -> Any:
        return self.state, self.learner.first_memory(1)

    def control(self, memory: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
        state, memory = memory
        action, memory = self.learner.control(state, memory, key, obs[None], greedy=True)
        return action[0], (state, memory)


def require_drawing(config: TrainingConfig) -> None:
    """Raise InvalidArgumentError if films are asked for but the environment can't be drawn."""
    every = config.film_every
    if not every:
        return
    if not callable(getattr(config.environment, "render", None)):
        raise InvalidArgumentError(
            "film_every",
            f"must be 0 for {config.env}, which has no method render(state), but got {every}.",
        )
