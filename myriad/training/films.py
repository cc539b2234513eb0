"""Films of the agent on its way: an episode after every few evaluations."""

import importlib.util
from pathlib import Path
from typing import Any

from myriad.agents.controller import ControllerLearner, TrainedPolicy
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.files import write_errors_explained
from myriad.training.config import ResolvedConfig

# Frames of a film. It shows an episode's beginning if that is longer.
_NUM_STEPS = 200


class Films:
    """Records an episode of the greedy agent as a GIF.

    Args:
        resolved: the training.
        folder: where the films lie, made with the first one.
    """

    def __init__(self, resolved: ResolvedConfig, folder: Path):
        self._resolved = resolved
        self._folder = folder

    def record(self, agent: Any, update: int) -> None:
        """Record an episode of the agent after so many updates.

        Raises:
            InvalidArgumentError: the film can't be written.
        """
        from myriad.rendering.video import record

        learner = self._resolved.learner
        policy: Any = TrainedPolicy(learner, agent)
        if isinstance(learner, ControllerLearner):
            policy = learner.controller
        with write_errors_explained(self._folder):
            self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{update:09d}.gif"
        record(
            self._resolved.env,
            policy,
            path,
            num_steps=_NUM_STEPS,
            seed=self._resolved.config.seed,
        )


def require_drawing(resolved: ResolvedConfig) -> None:
    """Raise unless the films that a training asks for can be made.

    Raises:
        InvalidArgumentError: the environment can't be drawn.
        NotInstalledError: Pillow is not installed.
    """
    every = resolved.config.film_every
    if not every:
        return
    if not callable(getattr(resolved.env, "render", None)):
        raise InvalidArgumentError(
            f"film_every must be 0 for {resolved.config.env}, which has no method render(state), "
            f"but got {every}."
        )
    if importlib.util.find_spec("PIL") is None:
        raise NotInstalledError("film_every needs Pillow: pip install pillow")
