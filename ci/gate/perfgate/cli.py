"""The command `perfgate`. Each subcommand loads its own modules, so that `comment` and `store` need no NumPy.

perfgate --base origin/main          compare the working tree with its merge base with origin/main
perfgate find BENCHMARK GOOD BAD     name the commit that made a benchmark slower
perfgate accept BENCHMARK ...        accept a regression, for a person to review
perfgate history                     print the change points of main's history
perfgate store fetch|push            keep asv's results on a branch
perfgate comment --report FILE       post a report below a pull request
"""

import importlib
import sys
from collections.abc import Sequence

_SUBCOMMANDS = {
    "find": "perfgate.bisect",
    "accept": "perfgate.accept",
    "history": "perfgate.history.levels",
    "store": "perfgate.history.store",
    "comment": "perfgate.report.comment",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    module = _SUBCOMMANDS.get(argv[0]) if argv else None
    if module is None:
        return importlib.import_module("perfgate.compare").main(argv)
    return importlib.import_module(module).main(argv[1:])
