"""Hyperparameter tuning: search spaces, studies, and trials side by side in compiled programs.

The campaign loads on first use, so Optuna and JAX are needed only where trials run.
"""

from typing import TYPE_CHECKING, Any

from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace

if TYPE_CHECKING:
    from myriad.tuning.campaign import TuneResult, tune

__all__ = ["SearchSpace", "TuneResult", "TuneSettings", "tune"]


def __getattr__(name: str) -> Any:
    if name not in ("TuneResult", "tune"):
        raise AttributeError(f"module 'myriad.tuning' has no attribute {name!r}")
    # Check for Optuna first, since importing the module without it would end in a traceback.
    from myriad.tuning.storage import require_optuna

    require_optuna()
    from myriad.tuning import campaign

    return getattr(campaign, name)
