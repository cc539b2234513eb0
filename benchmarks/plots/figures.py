"""The figures. Each takes the rows of one machine and environment, and its title is the finding."""

import math
from typing import Any

from benchmarks.harness.registry import OURS, library_of
from benchmarks.plots.style import (
    GREY,
    by_library,
    calls_of,
    caption,
    decade_axis,
    environments,
    interval,
    label_of,
    look_of,
    measured,
    name_of,
    page,
    rate_line,
    short_bytes,
    short_number,
    short_times,
    size_axis,
    span,
)

_ENVIRONMENTS = "environments side by side"
_SMALLEST = 100
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


# --- steps/s beside other libraries


def throughput_scaling(rows: Any) -> Any:
    """Return a figure of steps/s over the number of environments, with a line per library."""
    rows = measured(rows)
    figure, ((axes,),) = page(finding(rows), caption(rows, _rates_shown(rows)), (10, 5.4))
    for library, own in by_library(rows):
        rate_line(axes, own.num_envs, own, label=label_of(library), **look_of(library))
    axes.set_ylabel("environment steps per second")
    size_axis(axes, rows.num_envs, _ENVIRONMENTS)
    decade_axis(axes.yaxis, [end for ends in interval(rows) for end in ends])
    figure.legend(loc="outside right center")
    return figure


def _rates_shown(rows: Any) -> str:
    return (
        f"Auto-reset, {_kind(rows)}; median and 95% interval of {calls_of(rows)} calls. Each "
        f"library in its own process, called in turn; a ratio divides two medians. {_chunks(rows)}"
    )


def _kind(rows: Any) -> str:
    agent = rows.agent.iloc[0]
    if agent.startswith("mlp-"):
        return f"actions of {_network(agent)}"
    return "random actions" if agent == "random" else f"trainings by {agent}"


def _network(agent: str) -> str:
    return f"a network of {agent.removeprefix('mlp-').replace('-', ' x ')}"


def _chunks(rows: Any) -> str:
    """Say at which scan chunk each library was fastest, size by size."""
    alike: dict[str, list[str]] = {}
    for library, own in by_library(measured(rows)):
        cells = zip(own.scan_chunk_size, own.ran_as != own.library, strict=True)
        chunks = [f"{chunk:,.0f}{'*' * star}" for chunk, star in cells if chunk > 0]
        alike.setdefault(", ".join(chunks), []).append(name_of(library))
    parts = [f"{', '.join(names)}: {chunks}" for chunks, names in alike.items() if chunks]
    if not parts:
        return ""
    star = " * with our XLA options." if any("*" in part for part in parts) else ""
    return f"Fastest of the measured scan chunks, size by size: {'; '.join(parts)}.{star}"


def finding(rows: Any) -> str:
    """Return the ratio of our steps/s to the fastest other library's, each at its best chunk.

    Slower cases come first. Without a clear difference at every size it is no finding.
    """
    rows = measured(rows)
    env = rows.env.iloc[0]
    sizes = rows.num_envs[rows.library == OURS]
    others = rows[
        rows.ratio.notna()
        & (rows.library.map(library_of) == rows.library)
        & (rows.library != OURS)
        & rows.num_envs.isin(sizes)
    ]
    if others.empty:
        best = rows.loc[rows.steps_per_s.idxmax()]
        rate = short_number(best.steps_per_s)
        return f"{env}: {name_of(best.library)} reaches {rate} steps per second"
    closest = others.loc[others.groupby("num_envs").ratio.idxmin()]
    ratios, low, high = interval(closest, "ratio")
    agent = rows.agent.iloc[0]
    does = f"steps {env}" if agent == "random" else f"trains {agent} on {env}"
    if agent.startswith("mlp-"):
        does = f"steps {env} with {_network(agent)}"
    slower = [
        f"{short_times(row.ratio)} times {name_of(row.library)} at {environments(row.num_envs)}"
        for row in closest[high < 1].itertuples()
    ]
    if slower:
        return f"Myriad {does} slower: {', '.join(slower)}"
    if (low <= 1).any():
        return f"{env}: steps per second of every library"
    fastest = " and ".join(map(name_of, dict.fromkeys(closest.library)))
    fastest = f"the faster of {fastest}" if " and " in fastest else fastest
    many = span([short_times(ratio) for ratio in sorted(ratios)])
    chunk = ", each at its best scan chunk" if rows.searched.any() else ""
    return f"Myriad {does} {many} times as fast as {fastest}{chunk}"


def library_comparison(rows: Any) -> Any:
    """Return a figure of every library's steps/s, a panel per size, the fastest on top."""
    panels = {size: own for size, own in rows.groupby("num_envs") if not measured(own).empty}
    lines = [len(own) for own in panels.values()]
    notes = measured(rows).loc[lambda own: own.reason != ""].drop_duplicates(["library", "reason"])
    starred = [f"* {library_of(row.library)}: {row.reason}" for row in notes.itertuples()]
    figure, axes = page(
        finding(rows),
        caption(rows, "\n".join([_rates_shown(rows), *starred])),
        (9, 2.2 + sum(0.29 * count + 0.45 for count in lines)),
        (len(panels), 1),
        sharex=True,
        height_ratios=lines,
    )
    ends = [end for ends in interval(measured(rows)) for end in ends]
    for panel, (num_envs, own) in zip(axes[:, 0], panels.items(), strict=True):
        _standings(panel, own)
        panel.set_title(f"{environments(num_envs)}, {_kind(own)}")
        decade_axis(panel.xaxis, ends)
    low, high = axes[0, 0].get_xlim()
    room = (high / low) ** 0.2  # for the words right of the fastest dot
    axes[0, 0].set_xlim(low, high * room)
    axes[-1, 0].set_xlabel("environment steps per second")
    return figure


def _standings(axes: Any, rows: Any) -> None:
    """Draw a dot and its interval for each library, and in grey those without a value."""
    ranked = measured(rows).sort_values("steps_per_s", ascending=False)
    absent = rows[rows.status != "ok"].sort_values("library")
    names = [name_of(row.library) + "*" * bool(row.reason) for row in ranked.itertuples()]
    names += map(name_of, absent.library)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    labels = axes.get_yticklabels()
    for place, (_, row) in enumerate(ranked.iterrows()):
        middle, low, high = interval(row)
        ours = row.library == OURS
        look = look_of(row.library) | {"linestyle": "", "markersize": 9 if ours else 5}
        axes.errorbar([middle], [place], xerr=[[middle - low], [high - middle]], **look)
        words = short_number(middle)
        words += "" if math.isnan(row.ratio) else f"; ours is {short_times(row.ratio)} times that"
        words += f"; chunk {row.scan_chunk_size:,.0f}" if row.scan_chunk_size > 0 else ""
        words += ", our XLA options" if row.ran_as != row.library else ""
        beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
        weight = "bold" if ours else "normal"
        axes.annotate(words, (high, place), fontweight=weight, **beside)
        labels[place].set_fontweight(weight)
        if ours:
            axes.axhspan(place - 0.5, place + 0.5, color=look["color"], alpha=0.1, linewidth=0)
    for place, status in enumerate(absent.status, len(ranked)):
        labels[place].set_color(GREY)
        at = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": GREY}
        axes.annotate(status, (0.01, place), **at)


# --- efficiency


def scaling_efficiency(rows: Any) -> Any:
    """Return a figure of the steps/s as a share of perfect scaling, and of the best steps/s."""
    rows = measured(rows)
    # One environment is no batch: the documented matrix begins with 100.
    if rows.num_envs[rows.num_envs >= _SMALLEST].nunique() > 1:
        rows = rows[rows.num_envs >= _SMALLEST]
    shown = (
        "Left: rate(n) / (n / n0 x rate(n0)), n0 the smallest size; right: rate(n) / best rate; "
        "intervals are those of rate(n). "
    )
    below = caption(rows, shown + _rates_shown(rows))
    figure, ((promised, best),) = page(efficiency_finding(rows), below, (10, 5), (1, 2))
    efficiencies = [1.0]
    for library, own in by_library(rows):
        sizes, rates, look = own.num_envs, own.steps_per_s, look_of(library)
        scales = sizes.iloc[0] / (sizes * rates.iloc[0])
        rate_line(promised, sizes, own, scales, **look)
        rate_line(best, sizes, own, 1 / rates.max(), label=label_of(library), **look)
        efficiencies += [share for end in interval(own) for share in scales * end]
    promised.axhline(1, color=GREY, linestyle=":", marker="", label="perfect scaling")
    for axes in (promised, best):
        size_axis(axes, rows.num_envs, _ENVIRONMENTS)
    decade_axis(promised.yaxis, efficiencies, write=lambda value: f"{100 * value:.4g}%")
    promised.set_ylim(top=1.5 * max(efficiencies))
    promised.set_ylabel("efficiency against the smallest size")
    best.set(ylim=(0, None), ylabel="share of the library's best rate")
    best.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    figure.legend(loc="outside right center")
    return figure


def efficiency_finding(rows: Any) -> str:
    """Say from which size on the first library is about as fast as it gets, if that is clear."""
    library, own = by_library(rows)[0]
    name = f"{'Myriad' if library == OURS else label_of(library)} on {own.env.iloc[0]}"
    _, low, high = interval(own)
    full = own.num_envs[high >= low[own.steps_per_s.idxmax()]].iloc[0]
    if full == own.num_envs.iloc[0]:
        return f"{name}: steps per second by the number of environments"
    return f"{name} reaches its best rate at {environments(full)}"


# --- memory


def memory_scaling(rows: Any) -> Any:
    """Return a figure of bytes over environments, the scan chunk or both. A cross is a failure."""
    panels = {suite: own for suite, own in rows.groupby("suite") if not measured(own).empty}
    shown = (
        "Peak: the most that was held at once. Arguments and temporaries as the compiler states "
        "them. A cross: refused, would not fit."
    )
    figure, (axes,) = page(
        memory_finding(rows),
        caption(rows, shown),
        (4 + 4.5 * len(panels), 5),
        (1, len(panels)),
        sharey=True,
    )
    for panel, (suite, own) in zip(axes, panels.items(), strict=True):
        column, label = _MEMORY_PANELS[suite]
        has_labels = panel is axes[0]  # one legend is enough for both panels
        libraries = by_library(measured(own))
        for library, of_library in libraries:
            whose = f"{label_of(library)}: " if len(libraries) > 1 else ""
            for name, (what, line) in _BYTES.items():
                look = line | {"color": look_of(library)["color"]}
                in_legend = whose + what if has_labels else None
                panel.plot(of_library[column], of_library[name], label=in_legend, **look)
        _mark_refused(panel, own, column)
        size_axis(panel, own[column], label, every_tick=column == "scan_chunk_size")
        about = f"{own.env.iloc[0]}, {own.agent.iloc[0]}"
        if column == "scan_chunk_size":
            about += f", {environments(own.num_envs.iloc[0])}"
        panel.set_title(about, color=GREY)
    decade_axis(axes[0].yaxis, measured(rows)[[*_BYTES]].to_numpy().ravel(), write=short_bytes)
    axes[0].set_ylabel("bytes")
    figure.legend(loc="outside right center")
    return figure


def _mark_refused(axes: Any, rows: Any, column: str) -> None:
    """Draw a cross with its status at the top edge for each size that could not be measured."""
    at_top = axes.get_xaxis_transform()
    for row in rows[(rows.status != "ok") & (rows[column] > 0)].itertuples():
        size = getattr(row, column)
        axes.plot([size], [0.97], "kx", markersize=8, transform=at_top, gid="refused")
        place = {"xycoords": at_top, "ha": "center", "va": "top", "rotation": 90}
        axes.annotate(row.status, (size, 0.93), fontsize=8, **place)


def memory_finding(rows: Any) -> str:
    """Say what an environment costs or the peak of the largest chunk, and what was refused."""
    _, ours = by_library(measured(rows))[0]
    suite = min(ours.suite)
    column, _ = _MEMORY_PANELS[suite]
    ours = ours[ours.suite == suite]
    first, last = ours.iloc[0], ours.iloc[-1]
    peak, growth = last.peak_bytes, last.peak_bytes - first.peak_bytes
    if suite == "memory_envs":
        text = f"{last.env}: {environments(last.num_envs)} peak at {short_bytes(peak)}"
        if growth > 0:
            each = growth / (last.num_envs - first.num_envs)
            text += f", {short_bytes(each)} per environment added"
    else:
        text = f"{last.env}: chunks of {last.scan_chunk_size:,.0f} peak at {short_bytes(peak)}"
    refused = rows[(rows.suite == suite) & (rows.status == "refused")][column]
    return text + ("" if refused.empty else f"; {short_number(refused.min())} don't fit")


# --- the scan chunk


def scan_chunk_sensitivity(rows: Any) -> Any:
    """Return a figure of steps/s, temporaries and seconds to compile over the scan chunk."""
    shown = (
        f"Agent {rows.agent.iloc[0]}; steps/s: median and 95% interval of {calls_of(rows)} calls. "
        "Chunks whose intervals reach into that of the fastest are named with it. "
        "A cross: no measurement."
    )
    figure, axes = page(
        chunk_finding(rows),
        caption(rows, shown),
        (8, 7.4),
        (3, 1),
        sharex=True,
        height_ratios=(2, 1, 1),
    )
    rates, temporaries, compiling = axes[:, 0]
    for (library, num_envs), own in measured(rows).groupby(["library", "num_envs"]):
        chunks = own.scan_chunk_size
        rate_line(rates, chunks, own, label=f"{label_of(library)}, {environments(num_envs)}")
        temporaries.plot(chunks, own.temp_bytes)
        compiling.plot(chunks, own.compile_s)
    _mark_refused(rates, rows, "scan_chunk_size")
    labels = ("environment steps/s", "temporaries", "compiling, s")
    for panel, label in zip(axes[:, 0], labels, strict=True):
        panel.margins(y=0.15)
        panel.set(ylabel=label, ylim=(0, None))
        size_axis(panel, rows.scan_chunk_size, "", every_tick=True)
    rates.yaxis.set_major_formatter(lambda value, _: short_number(value))
    temporaries.yaxis.set_major_formatter(lambda value, _: short_bytes(value))
    compiling.set_xlabel(_CHUNK)
    rates.legend()
    figure.align_ylabels()
    return figure


def chunk_finding(rows: Any) -> str:
    """Name the fastest chunks at each size, up to the intervals."""
    _, ours = by_library(measured(rows))[0]
    parts = [f"{_fastest(own)} at {environments(size)}" for size, own in ours.groupby("num_envs")]
    chunks = ours.scan_chunk_size
    return (
        f"{rows.env.iloc[0]}: of scan chunks of {chunks.min():,.0f} to {chunks.max():,.0f} steps "
        f"the fastest is {', '.join(parts)}"
    )


def _fastest(rows: Any) -> str:
    rows = rows.reset_index()
    _, low, high = interval(rows)
    as_fast = rows[high >= low[rows.steps_per_s.idxmax()]]
    sizes = [f"{size:,.0f}" for size in as_fast.scan_chunk_size]
    in_a_row = as_fast.index[-1] - as_fast.index[0] == len(as_fast) - 1
    return span(sizes) if in_a_row else " or ".join(sizes)
