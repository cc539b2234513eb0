"""`python -m myriad.cli` runs the command `myriad`."""

import sys

from myriad.cli import main

sys.exit(main())
