"""`myriad export`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from myriad.cli.flags import AgentFlags


@dataclasses.dataclass(frozen=True)
class Export(AgentFlags):
    """Write the trained agent of a run to a file that loads without Myriad."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    format: Annotated[
        Literal["stablehlo", "safetensors"], tyro.conf.arg(metavar="{stablehlo,safetensors}")
    ] = dataclasses.field(kw_only=True)
    """stablehlo: a program of JAX that chooses the greedy actions for a batch of observations.
    safetensors: the parameters and the moments of observations, by name."""

    output: Path | None = None
    """File to write. By default agent.FORMAT in the run's folder."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Write the file, and print its name and what it holds."""
        from myriad.training.export import export_agent

        output = self.output or self.run_folder / f"agent.{self.format}"
        training = self.load(self.run_folder)
        said = export_agent(*training, output, format=self.format, force=self.force)
        print(f"{output}: {said}")
