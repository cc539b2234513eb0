"""Run `perfgate` as `python -m perfgate`."""

import sys

from perfgate.cli import main

if __name__ == "__main__":
    sys.exit(main())
