"""What suites take from Myriad's inside, on today's package and on older commits of it.

asv and the gate run the suites of your checkout on older packages, where a name may be another one
or may not exist yet. `find` tries today's name first and then the former ones.
"""

import importlib
from typing import Any

# Today's `module:name`, or a whole module, and what it was called before, newest first.
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
    """Return what `module:name` names in Myriad, under its present name or a former one.

    Raises:
        NotImplementedError: this commit has it under none of them; asv then skips the benchmark.
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
    """Whether the error is about the target itself, not about what its module needs."""
    module, _, name = target.partition(":")
    if isinstance(error, ModuleNotFoundError):
        return error.name is not None and f"{module}.".startswith(f"{error.name}.")
    return error.name == name
