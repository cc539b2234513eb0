"""Run the command `myriad` as `python -m myriad`, if it is not on PATH."""

import sys

from myriad.cli import main

sys.exit(main())
