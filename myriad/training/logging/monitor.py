"""Monitor where a training's time goes and how much of the machine it uses."""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import jax

from myriad.host import resident_bytes, usable_cores

# The trainer's phases, one after another. All other time is the host's.
PHASES = ("train", "evaluate", "log", "save")


class Monitor:
    """Times the phases of a training, and describes what happened since the last row.

    Attributes:
        seconds: the seconds of each of `PHASES` so far.
    """

    def __init__(self):
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._first_steps = 0
        self._inside_s = 0.0
        self._cores = usable_cores()
        self._gpu = _Gpu.of(jax.local_devices()[0])
        self._last = self._now(0)

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the block's seconds as one of `PHASES`, except for a phase inside the block."""
        start = time.perf_counter()
        before, self._inside_s = self._inside_s, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[phase] += spent - self._inside_s
            self._inside_s = before + spent

    def restart(self, steps: int) -> None:
        """Start measuring now, after `steps` of all environments together."""
        self._first_steps = steps
        self._last = self._now(steps)

    def rate(self, steps: int) -> float:
        """Return the steps/s of training since `restart`, NaN before it has trained."""
        train_s = self.seconds["train"]
        return (steps - self._first_steps) / train_s if train_s else math.nan

    def row(self, steps: int) -> dict[str, Any]:
        """Describe the time since the last row.

        Args:
            steps: steps of all environments together so far.

        Returns:
            `seconds`, `steps_per_s` while training, the share of the seconds that each phase took,
            `device_utilisation` from 0 to 1, `device_memory_bytes` and `process_memory_bytes`. A
            value is None if this machine can't tell it.
        """
        before, now = self._last, self._now(steps)
        self._last = now
        seconds = now["time"] - before["time"]
        phases = {name: now[name] - before[name] for name in PHASES}
        shares = {f"{name}_share": spent / seconds for name, spent in phases.items()}
        rate = (steps - before["steps"]) / phases["train"] if phases["train"] else None
        row = {"seconds": seconds, "steps_per_s": rate, **shares}
        row["host_share"] = max(0.0, 1 - sum(shares.values()))
        if self._gpu is None:
            used = now["processor"] - before["processor"]
            row["device_utilisation"] = min(1.0, used / seconds / self._cores)
            row["device_memory_bytes"] = resident_bytes()
        else:
            row["device_utilisation"] = self._gpu.utilisation()
            row["device_memory_bytes"] = self._gpu.memory_bytes()
        return row | {"process_memory_bytes": resident_bytes()}

    def _now(self, steps: int) -> dict[str, float]:
        return self.seconds | {
            "time": time.perf_counter(),
            "steps": steps,
            "processor": time.process_time(),
        }


def summary(row: dict[str, Any]) -> str:
    """Return a row as the progress line shows it: "train 93%, evaluate 4%, device 87%"."""
    shares = [f"{name} {row[f'{name}_share']:.0%}" for name in ("train", "evaluate")]
    used = row["device_utilisation"]
    shares.append("device unavailable" if used is None else f"device {used:.0%}")
    held = row["device_memory_bytes"]
    shares.append("memory unavailable" if held is None else f"{held / 2**20:,.0f} MiB")
    return ", ".join(shares)


class _Gpu:
    """The figures of a GPU that JAX and NVML report."""

    def __init__(self, device: Any):
        self._device = device
        self._handle = None
        with contextlib.suppress(Exception):  # Absent, of another version, or without a driver.
            import pynvml  # pyright: ignore[reportMissingImports]

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = _handle_of(pynvml, device.local_hardware_id)

    @classmethod
    def of(cls, device: Any) -> "_Gpu | None":
        return None if device.platform == "cpu" else cls(device)

    def utilisation(self) -> float | None:
        """Return the share of the last moments in which a kernel ran."""
        if self._handle is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
        return None

    def memory_bytes(self) -> int | None:
        """Return the bytes that JAX's arrays and programs hold."""
        return (self._device.memory_stats() or {}).get("bytes_in_use")


def _handle_of(nvml: Any, index: int) -> Any:
    """Return NVML's handle of the GPU that this process sees under a number.

    NVML sees all GPUs, while `CUDA_VISIBLE_DEVICES` may hide or reorder them by number or UUID.
    """
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    name = visible[index] if index < len(visible) else str(index)
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)
