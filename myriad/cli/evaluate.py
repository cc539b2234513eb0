"""`myriad evaluate`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from myriad.cli.flags import AgentFlags
from myriad.ranges import Integer, Seed


@dataclasses.dataclass(frozen=True)
class Evaluate(AgentFlags):
    """Evaluate the agent of a run over whole greedy episodes."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: Annotated[int, Integer(1)] = 128
    """Episodes to play."""

    seed: Seed = 0
    """Seed of the episodes."""

    def run(self) -> None:
        """Print the mean return and its standard error."""
        import numpy as np

        from myriad.api import evaluate
        from myriad.files import announced
        from myriad.training.run_folder import significant

        config, _, agent = self.load(self.run_folder)
        with announced(f"compiling and playing {self.episodes:,} episodes"):
            # A fixed policy has no state.
            found = evaluate(config, getattr(agent, "state", None), self.episodes, self.seed)
        returns = np.asarray(found, np.float64)
        error = float("nan")
        if len(returns) > 1:
            error = returns.std(ddof=1) / len(returns) ** 0.5
        print(
            f"return {significant(returns.mean())} +/- {significant(error)} "
            f"(standard error, {len(returns)} episodes)"
        )
