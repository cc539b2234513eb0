"""`python -m myriad` is `myriad`, for an environment whose commands are not on PATH."""

import sys

from myriad.cli import main

sys.exit(main())
