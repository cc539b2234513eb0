"""Hyperparameter tuning: search spaces, studies, and trials side by side in compiled programs.

The names load on first use, so Optuna and JAX are needed only where trials run.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from myriad.tuning.campaign import TuneResult, tune
    from myriad.tuning.settings import TuneSettings
    from myriad.tuning.space import SearchSpace

__all__ = ["SearchSpace", "TuneResult", "TuneSettings", "tune"]

_HOMES = {
    "SearchSpace": "myriad.tuning.space",
    "TuneResult": "myriad.tuning.campaign",
    "TuneSettings": "myriad.tuning.settings",
    "tune": "myriad.tuning.campaign",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'myriad.tuning' has no attribute {name!r}")
    if _HOMES[name] == "myriad.tuning.campaign":
        # Check for Optuna first, since importing these modules without it would end in a traceback.
        from myriad.tuning.storage import require_optuna

        require_optuna()
    return getattr(importlib.import_module(_HOMES[name]), name)
