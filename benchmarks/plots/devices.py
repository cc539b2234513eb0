"""Draw the scaling efficiency over the number of devices, from the rows of devices.py."""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness.results import TextRow
from benchmarks.plots.style import (
    LOOKS,
    by_key,
    calls_of,
    caption,
    number,
    numbers,
    page,
    rate_line,
    reference_line,
    size_axis,
    span,
)

_PANELS = {
    "strong": "strong scaling: the same environments on all devices together",
    "weak": "weak scaling: the same environments on each device",
}
_NUM_DEVICES = "num_devices"  # keys that this figure adds to the rows


def device_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of the efficiency over devices: a panel per scaling, a line per arm."""
    rows = [_taken_apart(row) for row in rows if row["efficiency"]]
    shown = (
        "Efficiency: rate(n) / (n x rate(1)), where a rate is steps/s of all environments. "
        f"Median and 95% interval of {calls_of(rows)} calls, all alternated. "
        "Each number of devices has a process of its own, on a CPU with a core for each device."
    )
    figure, axes = page(
        _finding(rows), caption(rows, shown), 5, (1, len(_PANELS)), width=10, sharey=True
    )
    lines = {key: place for place, key in enumerate(by_key(rows, "agent", "arm"))}
    for panel, (scaling, title) in zip(axes[0], _PANELS.items(), strict=True):
        panel.set_title(title, fontsize=10, loc="left")
        reference_line(panel, "ideal", 0.01)
        of_scaling = [row for row in rows if row["scaling"] == scaling]
        of_scaling.sort(key=lambda row: number(row, _NUM_DEVICES))
        for key, own in by_key(of_scaling, "agent", "arm").items():
            colour, marker, dashes = LOOKS[lines[key] % len(LOOKS)]
            rate_line(
                panel,
                numbers(own, _NUM_DEVICES),
                own,
                [1.0] * len(own),
                "efficiency",
                label=", ".join(filter(None, key)),
                color=colour,
                marker=marker,
                linestyle=dashes,
            )
        size_axis(panel, numbers(rows, _NUM_DEVICES), "devices", every_tick=True)
    highest = max(1.0, *numbers(rows, "efficiency_high"))
    # The axis starts at zero, because a cut axis would make a loss of a percent look like a cliff.
    axes[0, 0].set_ylim(0, 1.1 * highest)
    axes[0, 0].set_ylabel("efficiency")
    axes[0, 0].legend(frameon=False, loc="lower left")
    return figure


def _taken_apart(row: TextRow) -> TextRow:
    """Split the arm, such as `weak, 2 processes`, and count the devices of all processes."""
    scaling, _, arm = row["arm"].partition(", ")
    total = number(row, "devices") * (number(row, "processes") if row["processes"] else 1)
    return row | {"scaling": scaling, "arm": arm, _NUM_DEVICES: f"{total:g}"}


def _finding(rows: Sequence[TextRow]) -> str:
    """Return the efficiency on the most devices, the lower end first."""
    env = rows[0]["env"]
    most = max(numbers(rows, _NUM_DEVICES))
    if most == 1:
        return f"{env}: measured on one device alone, so that nothing is known of more"
    at_most = [row for row in rows if number(row, _NUM_DEVICES) == most]
    parts = []
    for (scaling,), own in by_key(at_most, "scaling").items():
        shares = span([f"{share:.2f}" for share in sorted(numbers(own, "efficiency"))])
        parts.append(f"{shares} of ideal {scaling} scaling")
    return f"{env}: {most:g} devices reach {' and '.join(parts)}"
