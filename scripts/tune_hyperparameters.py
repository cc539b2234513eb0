"""Tune PPO on bucket-brigade with the documented flags: `myriad tune` under another name.

`python scripts/tune_hyperparameters.py --scenario easy --n-trials 20`. Any other flag of
`myriad tune` works, too.
"""

import sys
from collections.abc import Sequence

from myriad.cli import main

ENV = "bucket-brigade"


def command_line(argv: Sequence[str]) -> list[str]:
    """Return the arguments of `myriad`.

    Example:
        >>> command_line(["--scenario", "easy"])
        ['tune', '--env', 'bucket-brigade', '--scenario', 'easy']
    """
    is_named = any(word == "--env" or word.startswith("--env=") for word in argv)
    return ["tune", *([] if is_named else ["--env", ENV]), *argv]


if __name__ == "__main__":
    sys.argv[1:] = command_line(sys.argv[1:])
    sys.exit(main())
