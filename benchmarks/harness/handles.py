"""What asv suites call, also on commits since 81a3df4 that came before today's names."""

from importlib import import_module, util
from typing import Any


def completed(config: Any) -> Any:
    """Return a configuration with every default filled in, as newer commits make it at once."""
    return config.resolve() if hasattr(config, "resolve") else config


def __getattr__(name: str) -> Any:
    if name in ("TrainingProgram", "LearningProgram"):
        newer = util.find_spec("myriad.programs")
        return getattr(import_module("myriad.programs"), name) if newer else globals()[f"_{name}"]
    raise AttributeError(name)


class _TrainingProgram:
    def __init__(self, config: Any):
        kind = import_module("myriad.training.programs").CompiledTraining
        self._training = training = kind(config.resolve())
        training.compile()
        self.updates, self.evaluation = training.run, training.evaluate
        self.compile_s, self.steps_per_update = training.compile_s, training.steps_per_update
        self.updates_per_call, self.num_devices = training.chunk, training.loop.num_devices
        self._resolved, self.scan_chunk_size = training.resolved, training.resolved.scan_chunk_size
        programs = training.run, training.init, training.evaluate
        self.reports = tuple(map(import_module("myriad.xla").describe, programs))

    def start(self) -> None:
        self.state = self._training.first_state()

    def run_updates(self, num_updates: int) -> None:
        self.state, _ = self._training.run_window(self.state, 0, num_updates, lambda *_: None)

    def warm_up(self) -> None:
        self.start()
        first = self._resolved.learner.first_learning_update(self._resolved.num_envs)
        self.run_updates(max(1, first))

    def evaluate(self) -> None:
        returns = self.evaluation(self.state.agent, self.state.key, self.state.num_updates)
        import_module("jax").block_until_ready(returns)

    def train(self, path: Any) -> None:
        run = import_module("myriad.training.run_folder").RunFolder.create(path, "", {})
        trainer = import_module("myriad.training.trainer").Trainer(self._resolved, run, quiet=True)
        trainer.programs, self._training.compile = self._training, lambda *_, **__: None
        trainer.run()

    def checkpoints(self, folder: Any) -> tuple[Any, Any]:
        kept = import_module("myriad.training.checkpoint").Checkpoints(folder)
        return lambda: kept.save(1, self.state), lambda: kept.restore(1, self.state)


class _LearningProgram:
    def __init__(self, config: Any):
        halves = import_module("myriad.training.programs").Halves(config.resolve())
        self._state, self._experience = halves.arguments()
        self.compiled = halves.learn.lower(self._state, self._experience).compile()

    def run(self) -> None:
        learned = self.compiled(self._state, self._experience)
        self._state = import_module("jax").block_until_ready(learned)
