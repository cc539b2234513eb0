"""`myriad cite`."""

import dataclasses
from pathlib import Path

import tyro

from myriad.cli.flags import XlaFlags


@dataclasses.dataclass(frozen=True)
class Cite(XlaFlags):
    """Print what to report with a result: machine, versions, commit, figures and the command."""

    results: tyro.conf.Positional[Path]
    """CSV file that a benchmark wrote."""

    def run(self) -> None:
        """Print the block."""
        from myriad.citation import cite

        print(cite(self.results))
