"""Modules of Myriad that have moved, for suites that also run on older commits of it.

asv and the gate run the suites of your checkout on packages from before the move. So a suite
loads what moved through `load`, which tries the present name first and then the former one.
"""

import importlib
from types import ModuleType

_FORMER = {
    "myriad.training.config": "myriad.config",
    "myriad.training.evaluation": "myriad.evaluation",
    "myriad.training.loop": "myriad.learning",
    "myriad.training.memory": "myriad.autotune.memory",
    "myriad.training.programs": "myriad.compiled",
    "myriad.training.run_folder": "myriad.tracking",
    "myriad.xla": "myriad.program",
}


def load(name: str) -> ModuleType:
    """Import a module of Myriad under its present name, or under its former one where it has that.

    Raises:
        ImportError: the commit has the module under neither name, or the module itself fails.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        former = _FORMER.get(name)
        is_elsewhere = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if former is None or not is_elsewhere:
            raise
    return importlib.import_module(former)
