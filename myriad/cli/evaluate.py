"""`myriad evaluate`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from myriad.cli.flags import XlaFlags
from myriad.ranges import Integer, Seed


@dataclasses.dataclass(frozen=True)
class Evaluate(XlaFlags):
    """Evaluate the agent of a run over whole greedy episodes."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: Annotated[int, Integer(1)] = 128
    """Episodes to play."""

    seed: Seed = 0
    """Seed of the episodes."""

    train_seed: Seed | None = None
    """Seed of the training, in a run of many seeds."""

    trust: bool = False
    """Import code that the run names as module:Class."""

    def run(self) -> None:
        """Print the mean return and its standard error."""
        import numpy as np

        from myriad.api import evaluate_run
        from myriad.training.metrics import significant

        found = evaluate_run(
            self.run_folder, self.episodes, self.seed, self.train_seed, trust=self.trust
        )
        returns = np.asarray(found, np.float64)
        error = float("nan")
        if len(returns) > 1:
            error = returns.std(ddof=1) / len(returns) ** 0.5
        print(
            f"return {significant(returns.mean())} +/- {significant(error)} "
            f"(standard error, {len(returns)} episodes)"
        )
