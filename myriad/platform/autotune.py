"""`myriad.autotune` under the path that the documentation shows."""

from myriad.autotune import AutotuneResult, autotune, suggest_scan_chunk_size

__all__ = ["AutotuneResult", "autotune", "suggest_scan_chunk_size"]
