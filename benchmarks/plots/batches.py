"""Draw rows/s over the batch size, from the rows of batch_size.py."""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness.results import TextRow
from benchmarks.plots.scaling import mark_refused
from benchmarks.plots.style import (
    LOOKS,
    by_key,
    calls_of,
    caption,
    decade_axis,
    interval,
    measured,
    number,
    numbers,
    page,
    rate_line,
    size_axis,
    whole,
)

_SIZE = "batch_size"  # keys that this figure adds to the rows


def batch_sizes(rows: Sequence[TextRow]) -> Any:
    """Return a figure of rows/s over the rows of a gradient step, with a line per agent."""
    sized = [_with_size(row) for row in rows]
    # Sorted as numbers, because as text 16384 would come before 2048.
    sized.sort(key=lambda row: number(row, _SIZE))
    agents = {agent: own for (agent,), own in sorted(by_key(sized, "agent").items())}
    chosen = {agent: _chosen(own) for agent, own in agents.items() if measured(own)}

    shown = (
        f"Median and 95% interval of {calls_of(rows)} calls; all sizes of an agent alternated. "
        "A ring: the chosen batch."
    )
    lost = [row for row in sized if row["status"] != "ok"]
    reasons = [f"{row['agent']}, {whole(number(row, _SIZE))} rows: {row['reason']}" for row in lost]
    below = caption(rows, " ".join([shown, *(f"A cross: {reason}." for reason in reasons)]))
    title = _finding(rows[0]["env"], chosen)
    figure, ((axes,),) = page(title, below, height=5.4)
    for place, agent in enumerate(chosen):
        own = measured(agents[agent])
        colour, marker, dashes = LOOKS[place % len(LOOKS)]
        look = {"color": colour, "marker": marker, "linestyle": dashes}
        rate_line(axes, numbers(own, _SIZE), own, [1.0] * len(own), label=agent, **look)
        best = chosen[agent]
        axes.plot(
            [number(best, _SIZE)],
            [number(best, "steps_per_s")],
            "o",
            color=colour,
            fillstyle="none",
            markersize=14,
            markeredgewidth=1.5,
            gid="chosen",
        )
    mark_refused(axes, lost, _SIZE)
    axes.set_ylabel("rows learned from per second")
    size_axis(axes, numbers(sized, _SIZE), "rows of a gradient step", every_tick=True)
    decade_axis(axes, [end for row in measured(rows) for end in interval(row)])
    axes.legend(frameon=False)
    return figure


def _with_size(row: TextRow) -> TextRow:
    """Split the arm, `batch 4096` or `precision, batch 4096`. Each arm has its own line."""
    arm, _, size = row["arm"].rpartition("batch ")
    named = " ".join([row["agent"], arm.removesuffix(", ")]).strip()
    return row | {_SIZE: size, "agent": named}


def _chosen(rows: Sequence[TextRow]) -> TextRow:
    """Return the row of the batch that the autotuner would choose."""
    from myriad.autotune.batch import BatchRate, smallest_near_best

    # The choice only depends on sizes and rates.
    by_size = {int(row[_SIZE]): row for row in measured(rows)}
    rates = [BatchRate(size, *interval(row), memory_bytes=0) for size, row in by_size.items()]
    return by_size[smallest_near_best(rates).batch_size]


def _finding(env: str, chosen: dict[str, TextRow]) -> str:
    """Name each agent's smallest batch that is about as fast as the fastest one."""
    from myriad.autotune.batch import NEAR_BEST

    by_size = by_key(list(chosen.values()), _SIZE)
    parts = [
        f"{whole(float(size))} for {' and '.join(row['agent'] for row in own)}"
        for (size,), own in by_size.items()
    ]
    near = f"within {1 - NEAR_BEST:.0%} of the fastest"
    return f"{env}: the smallest batch {near} is {', '.join(parts)}"
