"""Monitor where a training's time goes and how much of the machine it uses."""

import contextlib
import os
import time
from typing import Any

import jax

from myriad.host import resident_bytes, usable_cores
from myriad.training.callbacks import PHASES, Callback, Run
from myriad.training.run_folder import RunFolder


class Monitor(Callback):
    """Writes `monitor.jsonl`: what happened since the line before.

    Args:
        folder: the run's folder.
        every: evaluations between two lines.
    """

    def __init__(self, folder: RunFolder, every: int):
        self._folder = folder
        self._every = every
        self._cores = usable_cores()
        self._gpu = _Gpu.of(jax.local_devices()[0])

    def on_start(self, run: Run) -> None:
        """Measure from now on."""
        self._last = _now(run)

    def on_evaluation(self, run: Run) -> None:
        """Write a line if it is time to.

        Raises:
            InvalidArgumentError: the line can't be written.
        """
        if run.evaluations % self._every == 0:
            run.monitor = {"update": run.update, "steps": run.steps} | self._row(run)
            self._folder.append(run.monitor, "monitor.jsonl")

    def _row(self, run: Run) -> dict[str, Any]:
        """Describe the time since the last row. A value is None if this machine can't tell it."""
        before, now = self._last, _now(run)
        self._last = now
        seconds = now["time"] - before["time"]
        phases = {name: now[name] - before[name] for name in PHASES}
        shares = {f"{name}_share": spent / seconds for name, spent in phases.items()}
        rate = (now["steps"] - before["steps"]) / phases["train"] if phases["train"] else None
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


def _now(run: Run) -> dict[str, float]:
    return run.seconds | {
        "time": time.perf_counter(),
        "steps": run.steps,
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
