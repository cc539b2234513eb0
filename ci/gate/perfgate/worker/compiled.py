"""Read jax's compiled programs, in a worker.

This is the only module of the gate that uses jax, and only if the suite has loaded it.
"""

import contextlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_COMPILATION = "/jax/core/compile/backend_compile_duration"
_SAVED = "/jax/compilation_cache/compile_time_saved_sec"


def split_stages(offered: Any) -> tuple[Any, Any]:
    """Return a lowered and a compiled program from an object or a text. One of the two is None."""
    is_compiled = hasattr(offered, "memory_analysis")
    if isinstance(offered, str):
        is_compiled = offered.startswith("HloModule")
    return (None, offered) if is_compiled else (offered, None)


def numbers_of(compiled: Any) -> dict[str, float]:
    """Return the bytes that a compiled object reports, if any."""
    numbers: dict[str, float] = {}
    memory = compiled.memory_analysis() if hasattr(compiled, "memory_analysis") else None
    for kind in ("argument", "output", "temp", "alias", "generated_code"):
        value = getattr(memory, f"{kind}_size_in_bytes", None)
        if value is not None:
            numbers[f"{kind}_bytes"] = float(value)
    costs = (compiled.cost_analysis() if hasattr(compiled, "cost_analysis") else None) or {}
    # Older versions of jax return a list of them.
    costs = costs[0] if isinstance(costs, list) else costs
    if "bytes accessed" in costs:
        numbers["bytes_accessed"] = float(costs["bytes accessed"])
    return numbers


def context() -> dict[str, str]:
    """Return everything else that decides what a program does: versions, flags, devices."""
    context = {"python": platform.python_version(), "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    for name in ("jax", "jaxlib", "numpy"):
        if name in sys.modules:
            context[name] = str(getattr(sys.modules[name], "__version__", ""))
    jax = sys.modules.get("jax")
    if jax is not None:
        values = {key: str(value) for key, value in getattr(jax.config, "values", {}).items()}
        context["jax_config"] = json.dumps(values, sort_keys=True)
        context["devices"] = str([getattr(device, "device_kind", "") for device in jax.devices()])
    return context


def import_jax_for(suite: Path) -> None:
    """Import jax if the suite mentions it.

    A first benchmark may compile right after importing jax, before anything can listen.
    """
    files = suite.rglob("*.py") if suite.is_dir() else [suite]
    speaks_of_it = any("jax" in file.read_text(errors="replace") for file in files)
    if speaks_of_it and importlib.util.find_spec("jax") is not None:
        importlib.import_module("jax.monitoring")


class Compilations:
    """The programs that jax compiled while a block ran.

    There are none if jax isn't loaded by its end.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def _listen(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        self.count += event == _COMPILATION
        # A program from the cache counts with the seconds that it took to compile originally.
        self.seconds += duration_secs if event in (_COMPILATION, _SAVED) else 0.0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        monitoring = getattr(sys.modules.get("jax"), "monitoring", None)
        if monitoring is None:
            yield
            return
        monitoring.register_event_duration_secs_listener(self._listen)
        try:
            yield
        finally:
            monitoring.unregister_event_duration_listener(self._listen)
