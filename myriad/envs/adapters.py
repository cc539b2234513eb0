"""The former name of `myriad.adapters`, which your code may still import."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("myriad.adapters")
