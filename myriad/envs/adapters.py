"""The former name of `myriad.adapters`, kept for code that still imports it."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("myriad.adapters")
