"""The command `myriad`.

Each subcommand is a dataclass: its fields are the options, and its `run` does the work. What is
heavy loads inside the functions, so that `myriad --help` answers at once.
"""

import sys
import warnings
from collections.abc import Sequence

from myriad.cli.arguments import parse
from myriad.errors import MyriadError

__all__ = ["main", "parse"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 if the input can't be used."""
    try:
        command = parse(sys.argv[1:] if argv is None else argv)
        # This comes before anything can start JAX's backend, which reads its options once.
        from myriad.hardware import configure

        configure(without=command.without_xla_option)
        warnings.formatwarning = lambda message, *_: f"{message}\n"
        command.run()
    except MyriadError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
