"""Many seeds of one training, side by side in one program, as the trainer's host loop runs them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from myriad.agents.controller import ControllerLearner
from myriad.errors import InvalidArgumentError, shown
from myriad.host import release_freed_memory
from myriad.training.checkpoint import Checkpoints
from myriad.training.config import TrainingConfig, require_values
from myriad.training.loop import Report, TrainState
from myriad.training.memory import least_bytes
from myriad.training.population import Population
from myriad.training.programs import Flag, OnReport
from myriad.training.trainer import Trainings
from myriad.xla import require_room_for

# The most steps of all trainings of a device in one call: a few seconds, so that an interrupt
# doesn't wait long. If one training alone has smaller chunks, these are smaller as well.
_STEPS_PER_CALL = 4_000_000


def require_settings_of_seeds(config: TrainingConfig, profile_chunks: int = 0) -> None:
    """Raise InvalidArgumentError if a setting can't be combined with many seeds."""
    replay_memory = config.agent_options.get("replay_memory", "device")
    settings = [
        ("film_every", config.film_every, 0, "films show one training"),
        ("log_to", config.log_to, [], "trackers show one training"),
        ("compile_mode", config.compile_mode, "aot", "seeds share one compiled program"),
        ("agent.replay_memory", replay_memory, "device", "a device holds the states of its seeds"),
        ("profile_chunks", profile_chunks, 0, "a trace shows one training"),
    ]
    require_values("with many seeds", settings)
    if isinstance(config.learner, ControllerLearner):
        raise InvalidArgumentError(
            "seeds",
            f"must be left out for {config.agent}, which learns nothing, "
            f"but got {shown(config.seeds)}.",
        )


class SeedTrainings(Trainings):
    """Many seeds of one training in one program.

    Args:
        config: the training, with its seeds.
        start: as in `Trainings`. All of them begin with the same.
    """

    def __init__(self, config: TrainingConfig, start: Any = None):
        seeds = config.seeds or []
        population = Population(config, len(seeds), mapping=config.mapping)
        super().__init__(population, seeds, start)
        slots = -(-len(seeds) // population.num_devices)
        most = _STEPS_PER_CALL // (slots * population.steps_per_update)
        self._chunk = max(1, min(config.updates_per_chunk, most))

    @property
    def devices(self) -> str:
        number = self.programs.num_devices
        return f"{number} {jax.default_backend().upper()} device{'s' if number > 1 else ''}"

    @property
    def described(self) -> str:
        together = "one after another" if self.programs.mapping == "map" else "side by side"
        each = f"{self.programs.config.num_envs:,} environments"
        return f"{len(self.seeds)} seeds of {each}, {together} on {self.devices}"

    def compile(self, *, resumes: bool, meanwhile: Callable[[], None]) -> None:
        least = least_bytes(self.programs.config)
        if jax.default_backend() != "cpu":
            least //= self.programs.num_devices
        count = len(self.seeds)
        require_room_for(count, count * least, what="seeds", at_most="fewer than")
        self.programs.compile(meanwhile)
        release_freed_memory()
        stated = self.programs.stated_bytes(saves=True, resumes=resumes)
        require_room_for(count, stated, what="seeds")

    def first_state(self) -> TrainState:
        return self.begun(self.programs.first_state(self.seeds))

    def restored(self, checkpoints: Checkpoints, done: int) -> TrainState:
        # Unused slots of the last device are not saved.
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((len(self.seeds), *leaf.shape[1:]), leaf.dtype),
            self.programs.state_shapes,
        )
        return self.programs.scattered(checkpoints.restore(done, shapes))

    def to_save(self, state: TrainState) -> Any:
        return self.programs.gathered(state)

    def run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        running: np.ndarray,
        on_report: OnReport,
        interrupted: Flag,
    ) -> tuple[TrainState, int]:
        while done < boundary and not interrupted.is_set():
            count = min(self._chunk, boundary - done)
            begin = running & (done % self.programs.eval_every == 0)
            state, report = self.programs.run(state, count * running, begin)
            done += count
            on_report(report, done)
        return state, done

    def report_of(self, report: Report, index: int) -> Report:
        return jax.tree.map(lambda leaf: leaf[index], report)

    def evaluate(
        self, state: TrainState, running: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        return self.programs.play(state, running)

    def agents(self, state: TrainState) -> Any:
        return self.programs.gathered(state.agent)
