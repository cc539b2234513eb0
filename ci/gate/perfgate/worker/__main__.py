"""Start a worker: `python -P <this file>`, in the environment of the suite under test.

The suite may hold modules named `profiling`, `worker` or `perfgate`, or be perfgate's own suite. So
this folder stays off the import path (-P), and the worker's modules load under a private name.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

PRIVATE = "_perfgate"

if __name__ == "__main__":
    package = ModuleType(PRIVATE)
    package.__path__ = [str(Path(__file__).parents[1])]
    sys.modules[PRIVATE] = package
    importlib.import_module(f"{PRIVATE}.worker.serving").main()
