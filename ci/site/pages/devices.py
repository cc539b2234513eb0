"""How programs scale over devices: a table for each curve, by agent and environment.

`ci.site.pages` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ci.site.device_scaling import DeviceCurve, DevicePoint
from ci.site.formatting import counted, quantity, rate, times
from ci.site.gains import Gain
from ci.site.measurements import SuiteRun

_Key = tuple[str, str, str, str]
HEADERS = (
    "devices",
    "processes",
    "environments",
    "steps/s",
    "efficiency",
    "95% interval",
    "state on a device",
    "of it shared out",
)


@dataclass(frozen=True)
class CurveTable:
    """A curve: its finding and its table.

    Attributes:
        finding: the title.
        lines: the table's cells, in the order of `HEADERS`.
        run: the run that measured it.
    """

    finding: str
    lines: Sequence[Sequence[str]]
    run: SuiteRun


def devices_page(runs: Sequence[SuiteRun], plots: Sequence[str]) -> dict[str, Any]:
    """Return the context of the page: the newest table of each curve, and the drawn plots."""
    newest: dict[_Key, tuple[str, CurveTable]] = {}
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC)):
        for curve in run.curves:
            key = (curve.env, curve.agent, curve.name, run.hardware)
            title = f"{curve.agent} on {curve.env}" if curve.agent else curve.env
            newest[key] = title, CurveTable(finding_of(curve), _lines(curve), run)
    sections: dict[str, list[CurveTable]] = {}
    for key in sorted(newest):
        title, found = newest[key]
        sections.setdefault(title, []).append(found)
    drawn = [path for path in plots if path.rpartition("/")[2].startswith("device_scaling")]
    return {"sections": sections, "headers": HEADERS, "plots": drawn}


def finding_of(curve: DeviceCurve) -> str:
    """Say what the most devices reach, or that there was only one number of them."""
    first, last = curve.points[0], curve.points[-1]
    if first is last:
        alone = counted(first.num_devices, "device")
        return f"{curve.name}: measured on {alone} alone, so that nothing is known of more"
    found = _efficiency(curve, last)
    return (
        f"{curve.name}: {last.num_devices} devices reach {times(found.middle)} of the ideal "
        f"({found.span})"
    )


def _efficiency(curve: DeviceCurve, point: DevicePoint) -> Gain:
    """Return rate(n) / (n / n0 x rate(n0)) round by round, n0 the fewest devices."""
    first = curve.points[0]
    more = point.num_devices / first.num_devices
    shares = [a / (more * b) for a, b in zip(point.rates, first.rates, strict=True)]
    return Gain(curve.name, curve.name, shares)


def _lines(curve: DeviceCurve) -> list[list[str]]:
    lines = []
    for point in curve.points:
        reached = ["1", ""]
        if point is not curve.points[0]:
            found = _efficiency(curve, point)
            reached = [times(found.middle), found.span if found.ends else "too few rounds"]
        lines.append(
            [
                f"{point.devices:,}",
                f"{point.processes:,}",
                f"{point.num_envs:,}",
                rate(point.rate),
                *reached,
                _most(point.state_bytes),
                _most(point.sharded_bytes),
            ]
        )
    return lines


def _most(of_devices: Sequence[int]) -> str:
    return quantity(float(max(of_devices)), "bytes") if of_devices else ""
