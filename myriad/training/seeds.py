"""Many seeds of one training, side by side in one program, as the trainer's host loop runs them."""

from threading import Event
from typing import Any

import jax
import numpy as np

from myriad.agents.controller import ControllerLearner
from myriad.errors import InvalidArgumentError, shown
from myriad.training.config import TrainingConfig, require_values
from myriad.training.loop import Report, TrainState
from myriad.training.population import Population
from myriad.training.programs import OnReport


def require_settings_of_seeds(config: TrainingConfig, profile_chunks: int = 0) -> None:
    """Raise InvalidArgumentError if a setting can't be combined with many seeds."""
    replay_memory = config.agent_options.get("replay_memory", "device")
    # Their programs compile before the first step in either mode.
    mode = "aot" if config.compile_mode == "cached" else config.compile_mode
    settings = [
        ("film_every", config.film_every, 0, "films show one training"),
        ("log_to", config.log_to, [], "trackers show one training"),
        ("compile_mode", mode, "aot", "seeds share one compiled program"),
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


class SeedTrainings(Population):
    """Many seeds of one training in one program, with the methods of a `CompiledTraining`.

    Args:
        config: the training, with its seeds.
    """

    def __init__(self, config: TrainingConfig):
        self.seeds = config.seeds or []
        super().__init__(config, len(self.seeds), mapping=config.mapping)
        self.chunk = config.updates_per_chunk

    @property
    def devices(self) -> str:
        plural = "s" if self.num_devices > 1 else ""
        return f"{self.num_devices} {jax.default_backend().upper()} device{plural}"

    @property
    def described(self) -> str:
        together = "one after another" if self.mapping == "map" else "side by side"
        each = f"{self.config.num_envs:,} environments"
        return f"{len(self.seeds)} seeds of {each}, {together} on {self.devices}"

    def first_state(self, seeds: Any = None, options: Any = None) -> TrainState:
        return super().first_state(self.seeds if seeds is None else seeds, options)

    @property
    def saved_shapes(self) -> TrainState:
        # Unused slots of the last device are not saved.
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((len(self.seeds), *leaf.shape[1:]), leaf.dtype),
            self.state_shapes,
        )

    def to_save(self, state: TrainState) -> TrainState:
        return self.gathered(state)

    def everywhere(self, state: TrainState) -> TrainState:
        return self.scattered(state)

    def run_window(
        self,
        state: TrainState,
        done: int,
        boundary: int,
        on_report: OnReport,
        interrupted: Event,
        running: np.ndarray,
    ) -> tuple[TrainState, int]:
        while done < boundary and not interrupted.is_set():
            count = min(self.chunk, boundary - done)
            begin = running & (done % self.eval_every == 0)
            state, report = self.run(state, count * running, begin)
            done += count
            on_report(report, done)
        return state, done

    def report_of(self, report: Report, index: int) -> Report:
        return jax.tree.map(lambda leaf: leaf[index], report)

    def agents(self, state: TrainState) -> Any:
        return self.gathered(state.agent)
