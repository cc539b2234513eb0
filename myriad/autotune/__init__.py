"""The autotuner: it chooses a training's chunk size by timing that training on this machine."""

from myriad.autotune.cache import ProfileCache
from myriad.autotune.search import Candidate
from myriad.autotune.tuner import AutotuneResult, autotune, suggest_scan_chunk_size

__all__ = [
    "AutotuneResult",
    "Candidate",
    "ProfileCache",
    "autotune",
    "suggest_scan_chunk_size",
]
