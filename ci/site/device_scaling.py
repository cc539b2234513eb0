"""Curves of one program over its devices, as a run's samples hold them.

`ci.site.measurements` reads them, and `ci.site.pages.devices` shows them.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfgate.history.checks import array, integer, number, table, text

_LEAST = 1e-30  # steps/s: a ratio needs more than 0
_MOST = 10**15


@dataclass(frozen=True)
class DevicePoint:
    """The program on one number of devices.

    Attributes:
        devices: of one process.
        processes: how many there are.
        num_envs: environments of all devices together.
        state_bytes: of each device; empty where they were not counted.
        sharded_bytes: those of them that the devices share out among them.
        rates: steps/s, one per round.
    """

    devices: int
    processes: int
    num_envs: int
    state_bytes: Sequence[int]
    sharded_bytes: Sequence[int]
    rates: Sequence[float]

    @property
    def num_devices(self) -> int:
        """Devices of all processes."""
        return self.devices * self.processes

    @property
    def rate(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class DeviceCurve:
    """A program on ever more devices that were called in turn, the fewest first.

    Attributes:
        env: the environment.
        agent: the agent.
        scaling: what stays the same, such as `strong` or `weak`.
        arm: what else is varied; empty where nothing is.
        points: one per number of devices.
    """

    env: str
    agent: str
    scaling: str
    arm: str
    points: Sequence[DevicePoint]

    @property
    def name(self) -> str:
        """The scaling and the arm."""
        return ", ".join(filter(None, (self.scaling, self.arm)))


def is_curve(samples: Mapping[str, Any]) -> bool:
    """Tell whether an entry of a run's samples is a curve over devices."""
    return "scaling" in samples


def read_curve(samples: Mapping[str, Any]) -> DeviceCurve:
    """Read a curve over devices."""
    points = [_point(table(each)) for each in array(samples["points"])]
    if not points or len({len(point.rates) for point in points}) != 1 or not points[0].rates:
        raise ValueError("points need as many rounds as each other, and at least one")
    return DeviceCurve(
        env=text(samples["env"]),
        agent=text(samples.get("agent", "")),
        scaling=text(samples["scaling"]),
        arm=text(samples.get("arm", "")),
        points=sorted(points, key=lambda point: point.num_devices),
    )


def _point(samples: Mapping[str, Any]) -> DevicePoint:
    counts = {
        name: [integer(value, 0, _MOST) for value in array(samples.get(name, []))]
        for name in ("state_bytes", "sharded_bytes")
    }
    return DevicePoint(
        devices=integer(samples["devices"], 1, _MOST),
        processes=integer(samples.get("processes", 1), 1, _MOST),
        num_envs=integer(samples["num_envs"], 1, _MOST),
        rates=[number(rate, _LEAST) for rate in array(samples["steps_per_s"])],
        **counts,
    )
