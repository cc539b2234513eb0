"""Figures over a size: the number of environments, the scan chunk, the batch, or the devices.

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
    legend_below_title,
    libraries_in,
    look_of,
    measured,
    number,
    numbers,
    page,
    rate_line,
    reference_line,
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
_BYTES = {
    "peak_bytes": ("peak", {"marker": "o", "linestyle": "-"}),
    "temp_bytes": ("temporaries of the compiled chunk", {"marker": "s", "linestyle": "--"}),
    "argument_bytes": ("its arguments (the state)", {"marker": "^", "linestyle": ":"}),
}


def throughput_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of steps/s over the number of environments, with a line per library."""
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
    """Return the ratio of our steps/s to a peer's, or our best rate if there is no peer."""
    rates = {
        # Grouped by run, since a ratio needs two libraries that were called in turn.
        (row["library"], row["num_envs"], row["timestamp"]): number(row, "steps_per_s")
        for row in rows
    }
    ours = {(size, run): rate for (library, size, run), rate in rates.items() if library == OURS}
    for peer in PEERS:
        times = sorted(
            rate / rates[peer, *key] for key, rate in ours.items() if (peer, *key) in rates
        )
        if times:
            many = span([short_times(ratio) for ratio in times])
            return f"Myriad steps {rows[0]['env']} {many} times as fast as {peer}"
    return f"{rows[0]['env']}: up to {short_number(max(rates.values()))} steps per second"


def _rates_shown(rows: Sequence[TextRow]) -> str:
    agent = rows[0]["agent"]
    actions = (
        f"{agent.capitalize()} actions" if agent in ("random", "uniform") else f"Actions of {agent}"
    )
    calls = f"{actions}, auto-reset; median and 95% interval of {calls_of(rows)} calls."
    return f"{calls} Each side in its own process, alternated."


def scaling_efficiency(rows: Sequence[TextRow]) -> Any:
    """Return a figure of the steps/s as a share of perfect scaling, and of the best steps/s."""
    shown = (
        "Left: rate(n) / (n / n0 x rate(n0)), n0 the smallest size; right: rate(n) / best rate; "
        "intervals are those of rate(n). "
    )
    below = caption(rows, shown + _rates_shown(rows))
    figure, ((promised, best),) = page(
        efficiency_finding(rows), below, height=5, grid=(1, 2), width=10
    )
    for library in libraries_in(rows):
        own = [row for row in rows if row["library"] == library]
        sizes = numbers(own, "num_envs")
        style = style_of(library)
        first = number(own[0], "steps_per_s")
        most = max(numbers(own, "steps_per_s"))
        rate_line(promised, sizes, own, [sizes[0] / (size * first) for size in sizes], **style)
        rate_line(best, sizes, own, [1 / most] * len(own), label=label_of(library), **style)
    reference_line(promised, "perfect scaling", 0.99, ha="right")
    for axes in (promised, best):
        size_axis(axes, numbers(rows, "num_envs"), _ENVIRONMENTS)
    least, most = _efficiencies(rows)
    decade_axis(promised, [least, most], write=lambda value: f"{100 * value:.4g}%")
    promised.set(ylim=(None, 2 * max(most, 1.0)), ylabel="efficiency against the smallest size")
    best.set(ylim=(0, None), ylabel="share of the library's best rate")
    best.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    legend_below_title(figure, best, columns=4)
    return figure


def _efficiencies(rows: Sequence[TextRow]) -> tuple[float, float]:
    """Return the lowest and the highest end of an interval of the efficiencies."""
    found = []
    for own in by_key(rows, "library").values():
        per_env = number(own[0], "steps_per_s") / number(own[0], "num_envs")
        found += [
            end / (number(row, "num_envs") * per_env) for row in own for end in interval(row)[1:]
        ]
    return min(found), max(found)


def efficiency_finding(rows: Sequence[TextRow]) -> str:
    """Say from which number of environments on the machine is busy."""
    library = libraries_in(rows)[0]
    own = [row for row in rows if row["library"] == library]
    best = max(numbers(own, "steps_per_s"))
    full = next(row for row in own if number(row, "steps_per_s") >= 0.9 * best)
    name = "Myriad" if library == OURS else label_of(library)
    if len(own) == 1:
        return f"{name} on {full['env']}: one size measured, {environments(full['num_envs'])}"
    size = environments(full["num_envs"])
    return f"{name} on {full['env']} comes within 10% of its best rate at {size}"


def memory_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of bytes over environments, the scan chunk or both. A cross is a failure."""
    by_suite = {
        "memory_envs": ("num_envs", _ENVIRONMENTS),
        "memory_scan": ("scan_chunk_size", _CHUNK),
    }
    panels = {suite: [row for row in rows if row["suite"] == suite] for suite in by_suite}
    panels = {suite: own for suite, own in panels.items() if measured(own)}
    shown = (
        "Peak: the most that was held at once. "
        "Arguments and temporaries as the compiler states them."
    )
    below = caption(
        rows, f"{shown} A cross: refused, would not fit." if measured(rows) != list(rows) else shown
    )
    width = 5 * len(panels) + (3 if len(panels) == 1 else 0)
    figure, (axes,) = page(
        memory_finding(rows), below, 5, (1, len(panels)), width=width, sharey=True
    )
    for panel, (suite, own) in zip(axes, panels.items(), strict=True):
        column, label = by_suite[suite]
        _bytes_panel(panel, own, column)
        size_axis(panel, numbers(own, column), label, every_tick=column == "scan_chunk_size")
        decade_axis(
            panel,
            [value for name in _BYTES for value in numbers(measured(rows), name)],
            write=short_bytes,
        )
        chunks = [
            whole(size)
            for size in sorted({number(row, "scan_chunk_size") for row in measured(own)})
        ]
        held = f"chunk {span(chunks)}" if column == "num_envs" else environments(own[0]["num_envs"])
        panel.set_title(
            f"{own[0]['env']}, {own[0]['agent']}, {held}", fontsize=9, color=GREY, loc="left"
        )
    axes[0].set_ylabel("bytes")
    legend_below_title(figure, axes[0], columns=3)
    return figure


def _bytes_panel(axes: Any, rows: Sequence[TextRow], column: str) -> None:
    libraries = libraries_in(measured(rows))
    for library in libraries:
        own = [row for row in measured(rows) if row["library"] == library]
        for name, (label, look) in _BYTES.items():
            points = [
                (number(row, column), number(row, name))
                for row in own
                if row[name] and number(row, name) > 0
            ]
            label = f"{label_of(library)}: {label}" if len(libraries) > 1 else label  # noqa: PLW2901  # one name reads best
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    label=label,
                    color=style_of(library)["color"],
                    **look,
                )
    mark_refused(axes, [row for row in rows if row["status"] != "ok"], column)


def mark_refused(axes: Any, rows: Sequence[TextRow], column: str) -> None:
    """Draw a cross with its status at the top edge for each size that could not be measured."""
    for row in (row for row in rows if number(row, column) > 0):
        axes.plot(
            [number(row, column)],
            [0.97],
            "x",
            color="#000000",
            markersize=8,
            markeredgewidth=2,
            transform=axes.get_xaxis_transform(),
            gid="refused",
        )
        axes.annotate(
            row["status"],
            (number(row, column), 0.93),
            xycoords=axes.get_xaxis_transform(),
            fontsize=8,
            ha="center",
            va="top",
            rotation=90,
        )


def memory_finding(rows: Sequence[TextRow]) -> str:
    """Say what an environment costs or how the peak grows with the chunk, and what was refused."""
    for suite, column in (("memory_envs", "num_envs"), ("memory_scan", "scan_chunk_size")):
        of_suite = [row for row in rows if row["suite"] == suite]
        if ours := measured(of_suite):
            library = libraries_in(ours)[0]
            ours = [row for row in ours if row["library"] == library]
            lost = [
                row for row in of_suite if row["status"] == "refused" and row["library"] == library
            ]
            refused = [size for size in numbers(lost, column) if size > 0]
            break
    else:
        raise AssertionError("only figures with measured rows are drawn")
    first = ours[0]
    last = ours[-1]
    start, end = (number(row, "peak_bytes") for row in (first, last))
    unit = (
        environments if suite == "memory_envs" else lambda size: f"chunks of {whole(float(size))}"
    )
    text = f"{last['env']}: {unit(last[column])} peak at {short_bytes(end)}"
    if len(ours) > 1 and suite == "memory_envs" and end > start:
        each = (end - start) / (number(last, "num_envs") - number(first, "num_envs"))
        text += f", {short_bytes(each)} per environment added"
    elif len(ours) > 1:
        text += f", {short_times(end / start)} times {unit(first[column])}"
    return text + (f"; {short_number(min(refused))} don't fit" if refused else "")


def scan_chunk_sensitivity(rows: Sequence[TextRow]) -> Any:
    """Return a figure of steps/s, temporaries and seconds to compile over the scan chunk."""
    shown = (
        f"Agent {rows[0]['agent']}; steps/s: median and 95% interval of {calls_of(rows)} calls. "
        "Chunks whose intervals reach into that of the fastest are named with it."
    )
    below = caption(
        rows, shown + (" A cross: no measurement." if measured(rows) != list(rows) else "")
    )
    figure, axes = page(
        chunk_finding(rows), below, 7.4, (3, 1), sharex=True, height_ratios=(2, 1, 1)
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
    parts = [
        f"{_fastest(own)} at {environments(num_envs)}{_gain(own)}"
        for (num_envs,), own in groups.items()
    ]
    return f"{rows[0]['env']}: the fastest scan chunk is {', '.join(parts)}"


def _fastest(rows: Sequence[TextRow]) -> str:
    best = max(rows, key=lambda row: number(row, "steps_per_s"))
    places = [place for place, row in enumerate(rows) if interval(row)[2] >= interval(best)[1]]
    sizes = [whole(number(rows[place], "scan_chunk_size")) for place in places]
    in_a_row = places[-1] - places[0] == len(places) - 1
    return span(sizes) if in_a_row else " or ".join(sizes)


def _gain(rows: Sequence[TextRow]) -> str:
    best, worst = (pick(rows, key=lambda row: number(row, "steps_per_s")) for pick in (max, min))
    ratio = short_times(number(best, "steps_per_s") / number(worst, "steps_per_s"))
    return (
        "" if best is worst else f" ({ratio} times chunk {whole(number(worst, 'scan_chunk_size'))})"
    )


# --- batch_size.py

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
    title = _batch_finding(rows[0]["env"], chosen)
    figure, ((axes,),) = page(title, below, height=5.4)
    for place, agent in enumerate(chosen):
        own = measured(agents[agent])
        look = look_of(place)
        rate_line(axes, numbers(own, _SIZE), own, label=agent, **look)
        best = chosen[agent]
        ring = {"fillstyle": "none", "markersize": 14, "markeredgewidth": 1.5, "gid": "chosen"}
        point = [number(best, _SIZE)], [number(best, "steps_per_s")]
        axes.plot(*point, "o", color=look["color"], **ring)
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


def _batch_finding(env: str, chosen: dict[str, TextRow]) -> str:
    """Name each agent's smallest batch that is about as fast as the fastest one."""
    from myriad.autotune.batch import NEAR_BEST

    by_size = by_key(list(chosen.values()), _SIZE)
    parts = [
        f"{whole(float(size))} for {' and '.join(row['agent'] for row in own)}"
        for (size,), own in by_size.items()
    ]
    near = f"within {1 - NEAR_BEST:.0%} of the fastest"
    return f"{env}: the smallest batch {near} is {', '.join(parts)}"


# --- devices.py

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
        _device_finding(rows), caption(rows, shown), 5, (1, len(_PANELS)), width=10, sharey=True
    )
    lines = {key: place for place, key in enumerate(by_key(rows, "agent", "arm"))}
    for panel, (scaling, title) in zip(axes[0], _PANELS.items(), strict=True):
        panel.set_title(title, fontsize=10, loc="left")
        reference_line(panel, "ideal", 0.01)
        of_scaling = [row for row in rows if row["scaling"] == scaling]
        of_scaling.sort(key=lambda row: number(row, _NUM_DEVICES))
        for key, own in by_key(of_scaling, "agent", "arm").items():
            look = look_of(lines[key])
            label = ", ".join(filter(None, key))
            xs = numbers(own, _NUM_DEVICES)
            rate_line(panel, xs, own, column="efficiency", label=label, **look)
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


def _device_finding(rows: Sequence[TextRow]) -> str:
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
