"""Figures over a size: the number of environments, or the scan chunk.

Each function takes the rows of one machine and environment and returns a figure. Its title is the
finding, which is computed from the rows.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness.libraries import DECLARED, OURS
from benchmarks.harness.results import TextRow
from benchmarks.plots.style import (
    GREY,
    by_key,
    calls_of,
    caption,
    decade_axis,
    environments,
    interval,
    label_of,
    libraries_in,
    look_of,
    measured,
    number,
    numbers,
    page,
    rate_line,
    short_bytes,
    short_number,
    short_times,
    size_axis,
    span,
    style_of,
    whole,
)

# The libraries that a title may compare with.
PEERS = [name for name, library in DECLARED.items() if library.in_title]
_ENVIRONMENTS = "environments side by side"
_CHUNK = "steps in a scan chunk"
_MEMORY_PANELS = {
    "memory_envs": ("num_envs", _ENVIRONMENTS),
    "memory_scan": ("scan_chunk_size", _CHUNK),
}
_BYTES = {
    "peak_bytes": ("peak", {"marker": "o", "linestyle": "-"}),
    "temp_bytes": ("temporaries of the compiled chunk", {"marker": "s", "linestyle": "--"}),
    "argument_bytes": ("its arguments (the state)", {"marker": "^", "linestyle": ":"}),
}


def throughput_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of steps/s over the number of environments, with a line per library."""
    rows = measured(rows)
    figure, ((axes,),) = page(finding(rows), caption(rows, _rates_shown(rows)), height=5.4)
    axes.set_ylabel("environment steps per second")
    for library in libraries_in(rows):
        own = [row for row in rows if row["library"] == library]
        rate_line(
            axes,
            numbers(own, "num_envs"),
            own,
            label=label_of(library),
            **style_of(library),
        )
    size_axis(axes, numbers(rows, "num_envs"), _ENVIRONMENTS)
    decade_axis(axes, [end for row in rows for end in interval(row)])
    axes.legend(frameon=False)
    return figure


def finding(rows: Sequence[TextRow]) -> str:
    """Return the ratio of our steps/s to a peer's, or our best rate if no ratio is clear."""
    for peer in PEERS:
        times = sorted(interval(row, "ratio") for row in rows if row["library"] == peer)
        if times and all(low > 1 for _, low, _ in times):
            many = span([short_times(ratio) for ratio, _, _ in times])
            return f"Myriad steps {rows[0]['env']} {many} times as fast as {peer}"
    best = max(numbers(rows, "steps_per_s"))
    return f"{rows[0]['env']}: up to {short_number(best)} steps per second"


def _rates_shown(rows: Sequence[TextRow]) -> str:
    agent = rows[0]["agent"]
    actions = (
        f"{agent.capitalize()} actions" if agent in ("random", "uniform") else f"Actions of {agent}"
    )
    calls = f"{actions}, auto-reset; median and 95% interval of {calls_of(rows)} calls."
    return f"{calls} Each side in its own process, alternated."


def scaling_efficiency(rows: Sequence[TextRow]) -> Any:
    """Return a figure of the steps/s as a share of perfect scaling, and of the best steps/s."""
    rows = measured(rows)
    shown = (
        "Left: rate(n) / (n / n0 x rate(n0)), n0 the smallest size; right: rate(n) / best rate; "
        "intervals are those of rate(n). "
    )
    below = caption(rows, shown + _rates_shown(rows))
    figure, ((promised, best),) = page(
        efficiency_finding(rows), below, height=5, grid=(1, 2), width=10
    )
    efficiencies = [1.0]
    for library in libraries_in(rows):
        own = [row for row in rows if row["library"] == library]
        sizes = numbers(own, "num_envs")
        style = style_of(library)
        first = number(own[0], "steps_per_s")
        most = max(numbers(own, "steps_per_s"))
        scales = [sizes[0] / (size * first) for size in sizes]
        rate_line(promised, sizes, own, scales, **style)
        rate_line(best, sizes, own, [1 / most] * len(own), label=label_of(library), **style)
        efficiencies += [
            scale * rate for scale, row in zip(scales, own, strict=True) for rate in interval(row)
        ]
    promised.axhline(1, color=GREY, linestyle=":", label="perfect scaling")
    for axes in (promised, best):
        size_axis(axes, numbers(rows, "num_envs"), _ENVIRONMENTS)
    decade_axis(promised, efficiencies, write=lambda value: f"{100 * value:.4g}%")
    promised.set_ylabel("efficiency against the smallest size")
    best.set(ylim=(0, None), ylabel="share of the library's best rate")
    best.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure


def efficiency_finding(rows: Sequence[TextRow]) -> str:
    """Say which sizes are clearly slower than the fastest, if any is."""
    library = libraries_in(rows)[0]
    own = [row for row in rows if row["library"] == library]
    name = f"{'Myriad' if library == OURS else label_of(library)} on {own[0]['env']}"
    _, least, _ = max(map(interval, own))
    full = next(row for row in own if interval(row)[2] >= least)
    if full is own[0]:
        return f"{name}: steps per second by the number of environments"
    return f"{name} reaches its best rate at {environments(full['num_envs'])}"


def memory_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of bytes over environments, the scan chunk or both. A cross is a failure."""
    panels = {suite: [row for row in rows if row["suite"] == suite] for suite in _MEMORY_PANELS}
    panels = {suite: own for suite, own in panels.items() if measured(own)}
    shown = (
        "Peak: the most that was held at once. Arguments and temporaries as the compiler states "
        "them. A cross: refused, would not fit."
    )
    width = 4 + 4.5 * len(panels)
    figure, (axes,) = page(
        memory_finding(rows), caption(rows, shown), 5, (1, len(panels)), width=width, sharey=True
    )
    for panel, (suite, own) in zip(axes, panels.items(), strict=True):
        column, label = _MEMORY_PANELS[suite]
        # One legend is enough for both panels.
        _bytes_panel(panel, own, column, has_labels=panel is axes[0])
        size_axis(panel, numbers(own, column), label, every_tick=column == "scan_chunk_size")
        about = f"{own[0]['env']}, {own[0]['agent']}"
        if column == "scan_chunk_size":
            about += f", {environments(own[0]['num_envs'])}"
        panel.set_title(about, fontsize=9, color=GREY, loc="left")
    every = [value for name in _BYTES for value in numbers(measured(rows), name)]
    decade_axis(axes[0], every, write=short_bytes)
    axes[0].set_ylabel("bytes")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure


def _bytes_panel(axes: Any, rows: Sequence[TextRow], column: str, *, has_labels: bool) -> None:
    libraries = libraries_in(measured(rows))
    for library in libraries:
        own = [row for row in measured(rows) if row["library"] == library]
        whose = f"{label_of(library)}: " if len(libraries) > 1 else ""
        for name, (what, look) in _BYTES.items():
            label = f"{whose}{what}" if has_labels else None
            color = style_of(library)["color"]
            axes.plot(numbers(own, column), numbers(own, name), label=label, color=color, **look)
    mark_refused(axes, [row for row in rows if row["status"] != "ok"], column)


def mark_refused(axes: Any, rows: Sequence[TextRow], column: str) -> None:
    """Draw a cross with its status at the top edge for each size that could not be measured."""
    at_top = axes.get_xaxis_transform()
    for row in (row for row in rows if number(row, column) > 0):
        size = number(row, column)
        axes.plot([size], [0.97], "kx", markersize=8, transform=at_top, gid="refused")
        place = {"xycoords": at_top, "ha": "center", "va": "top", "rotation": 90}
        axes.annotate(row["status"], (size, 0.93), fontsize=8, **place)


def memory_finding(rows: Sequence[TextRow]) -> str:
    """Say what an environment costs or how the peak grows with the chunk, and what was refused."""
    library = libraries_in(measured(rows))[0]
    ours = [row for row in rows if row["library"] == library]
    suite = next(suite for suite in _MEMORY_PANELS for row in ours if row["suite"] == suite)
    column, _ = _MEMORY_PANELS[suite]
    ours = [row for row in ours if row["suite"] == suite]
    first, *_, last = [*measured(ours), measured(ours)[-1]]
    start, end = (number(row, "peak_bytes") for row in (first, last))
    if suite == "memory_envs":
        text = f"{last['env']}: {environments(last[column])} peak at {short_bytes(end)}"
        if end > start:
            each = (end - start) / (number(last, column) - number(first, column))
            text += f", {short_bytes(each)} per environment added"
    else:
        text = f"{last['env']}: chunks of {whole(number(last, column))} peak at {short_bytes(end)}"
        if last != first:
            text += f", {short_times(end / start)} times chunks of {first[column]}"
    refused = [number(row, column) for row in ours if row["status"] == "refused"]
    return text + (f"; {short_number(min(refused))} don't fit" if refused else "")


def scan_chunk_sensitivity(rows: Sequence[TextRow]) -> Any:
    """Return a figure of steps/s, temporaries and seconds to compile over the scan chunk."""
    shown = (
        f"Agent {rows[0]['agent']}; steps/s: median and 95% interval of {calls_of(rows)} calls. "
        "Chunks whose intervals reach into that of the fastest are named with it. "
        "A cross: no measurement."
    )
    figure, axes = page(
        chunk_finding(rows), caption(rows, shown), 7.4, (3, 1), sharex=True, height_ratios=(2, 1, 1)
    )
    rates, temporaries, compiling = axes[:, 0]
    groups = by_key(measured(rows), "library", "num_envs")
    for place, ((library, num_envs), own) in enumerate(groups.items()):
        look = look_of(place) | {"color": style_of(library)["color"]}
        chunks = numbers(own, "scan_chunk_size")
        label = f"{label_of(library)}, {environments(num_envs)}"
        rate_line(rates, chunks, own, label=label, **look)
        temporaries.plot(chunks, numbers(own, "temp_bytes"), **look)
        compiling.plot(chunks, numbers(own, "compile_s"), **look)
    mark_refused(rates, [row for row in rows if row["status"] != "ok"], "scan_chunk_size")
    for panel, label in (
        (rates, "environment steps/s"),
        (temporaries, "temporaries"),
        (compiling, "compiling, s"),
    ):
        panel.margins(y=0.15)
        panel.set(ylabel=label, ylim=(0, None))
        size_axis(panel, numbers(rows, "scan_chunk_size"), "", every_tick=True)
    rates.yaxis.set_major_formatter(lambda value, _: short_number(value))
    temporaries.yaxis.set_major_formatter(lambda value, _: short_bytes(value))
    compiling.set_xlabel(_CHUNK)
    rates.legend(frameon=False, fontsize=9)
    figure.align_ylabels()
    return figure


def chunk_finding(rows: Sequence[TextRow]) -> str:
    """Name the fastest chunks at each size, up to the intervals."""
    library = libraries_in(measured(rows))[0]
    groups = by_key([row for row in measured(rows) if row["library"] == library], "num_envs")
    parts = [f"{_fastest(own)} at {environments(num_envs)}" for (num_envs,), own in groups.items()]
    return f"{rows[0]['env']}: the fastest scan chunk is {', '.join(parts)}"


def _fastest(rows: Sequence[TextRow]) -> str:
    best = max(rows, key=lambda row: number(row, "steps_per_s"))
    places = [place for place, row in enumerate(rows) if interval(row)[2] >= interval(best)[1]]
    sizes = [whole(number(rows[place], "scan_chunk_size")) for place in places]
    in_a_row = places[-1] - places[0] == len(places) - 1
    return span(sizes) if in_a_row else " or ".join(sizes)
