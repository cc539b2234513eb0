"""`myriad.programs` for asv suites, also on commits since 81a3df4 that came before that module."""

import importlib
from pathlib import Path
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return getattr(importlib.import_module("myriad.programs"), name)
    except ModuleNotFoundError as error:
        if error.name != "myriad.programs":
            raise
    return {"TrainingProgram": _OlderTraining, "LearningProgram": _OlderLearning}[name]


def _older(module: str) -> Any:
    return importlib.import_module(f"myriad.{module}")


class _OlderTraining:
    def __init__(self, config: Any):
        self._resolved = resolved = config.resolve()
        self._training = training = _older("training.programs").CompiledTraining(resolved)
        training.compile()
        self.updates, self.evaluation = training.run, training.evaluate
        self.compile_s, self.num_devices = training.compile_s, training.loop.num_devices
        self.steps_per_update = training.steps_per_update
        self.scan_chunk_size = resolved.scan_chunk_size
        programs = training.run, training.init, training.evaluate
        self.reports = tuple(map(_older("xla").describe, programs))

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
        _older("timing").block_until_ready(returns)

    def train(self, run_folder: Path) -> None:
        folder = _older("training.logging.run_folder").RunFolder.create(run_folder, "", {})
        trainer = _older("training.trainer").Trainer(self._resolved, folder, quiet=True)
        trainer.programs, self._training.compile = self._training, lambda *_, **__: None
        trainer.run()

    def checkpoints(self, folder: Path) -> tuple[Any, Any]:
        kept = _older("training.checkpoint").Checkpoints(folder)
        return lambda: kept.save(1, self.state), lambda: kept.restore(1, self.state)


class _OlderLearning:
    def __init__(self, config: Any):
        halves = _older("training.halves").Halves(config.resolve())
        self._state, self._experience = halves.arguments()
        self.compiled = halves.learn.lower(self._state, self._experience).compile()

    def run(self) -> None:
        learned = self.compiled(self._state, self._experience)
        self._state = _older("timing").block_until_ready(learned)
