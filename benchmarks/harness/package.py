"""Find Myriad's internals for the suites, in the current package and in older commits.

asv and the gate run the suites of your checkout on older packages, where a name may differ or may
not exist yet. `find` tries the current name first and then the former ones.
"""

import importlib
from typing import Any

# The current `module:name`, or a whole module, and its former names, newest first.
_FORMER = {
    "myriad.hardware:host_memory": ("myriad.hardware:_host_memory",),
    "myriad.training.checkpoint": ("myriad.checkpoint",),
    "myriad.training.config": ("myriad.config",),
    "myriad.training.evaluation": ("myriad.evaluation",),
    "myriad.training.loop": ("myriad.learning",),
    "myriad.training.logging.run_folder": ("myriad.training.run_folder", "myriad.tracking"),
    "myriad.training.memory": ("myriad.autotune.memory",),
    "myriad.training.programs": ("myriad.compiled",),
    "myriad.training.trainer": ("myriad.trainer",),
    "myriad.xla": ("myriad.program",),
}


def find(target: str) -> Any:
    """Return Myriad's object `module:name`, under its current name or a former one.

    Raises:
        NotImplementedError: this commit has it under none of these names. asv then skips the
            benchmark.
    """
    module, _, name = target.partition(":")
    former = (f"{old}:{name}" for old in _FORMER.get(module, ()))
    for candidate in (target, *_FORMER.get(target, ()), *former):
        try:
            return _resolved(candidate)
        except (ModuleNotFoundError, AttributeError) as error:
            if not _is_missing(error, candidate):
                raise
    raise NotImplementedError(f"this commit of Myriad has no {name} in {module}")


def _resolved(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _is_missing(error: ModuleNotFoundError | AttributeError, target: str) -> bool:
    """Whether the target itself is missing, and not a dependency of its module."""
    module, _, name = target.partition(":")
    if isinstance(error, ModuleNotFoundError):
        return error.name is not None and f"{module}.".startswith(f"{error.name}.")
    return error.name == name
