"""`myriad plot`."""

import dataclasses
from pathlib import Path

import tyro

from myriad.cli.flags import XlaFlags


@dataclasses.dataclass(frozen=True)
class Plot(XlaFlags):
    """Draw the learning curves of runs. Runs that differ only in their seeds are one curve."""

    run_folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the runs."""

    output: Path = Path("learning_curves.png")
    """File to write, ending in .png or .svg."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Write the file, and print its name."""
        from myriad.files import require_free
        from myriad.training.curves import plot_runs

        require_free(self.output, force=self.force)
        plot_runs(self.run_folders, self.output)
        print(self.output)
