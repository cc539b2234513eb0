"""`python -m myriad.cli` is `myriad`."""

import sys

from myriad.cli import main

sys.exit(main())
