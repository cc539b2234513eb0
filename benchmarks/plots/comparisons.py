"""The figure that compares libraries. Its title is the finding, which is computed from the rows."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.libraries import DECLARED, OURS, library_of
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
    measured,
    number,
    page,
    short_number,
    short_times,
    span,
    style_of,
    words_beside,
)


def library_comparison(rows: Sequence[TextRow]) -> Any:
    """Return a figure of every library's steps/s, a panel per size, the fastest on top."""
    panels = {size: own for (size,), own in by_key(rows, "num_envs").items() if measured(own)}
    panels = dict(sorted(panels.items(), key=lambda panel: float(panel[0])))
    lines = [len(own) for own in panels.values()]
    figure, axes = page(
        comparison_finding(rows),
        caption(rows, _compared(rows)),
        2.2 + sum(0.29 * count + 0.45 for count in lines),
        (len(panels), 1),
        width=9,
        sharex=True,
        height_ratios=lines,
    )
    ends = [end for row in measured(rows) for end in interval(row)]
    for panel, (num_envs, own) in zip(axes[:, 0], panels.items(), strict=True):
        _standings(panel, own)
        actions = f"{environments(num_envs)}, {own[0]['agent']} actions"
        panel.set_title(actions, fontsize=10, loc="left")
        decade_axis(panel, ends, along="x")
    low, high = axes[0, 0].get_xlim()
    axes[0, 0].set_xlim(
        low, high * (high / low) ** 0.2
    )  # room for the words right of the fastest dot
    axes[-1, 0].set_xlabel("environment steps per second")
    return figure


def _standings(axes: Any, rows: Sequence[TextRow]) -> None:
    """Draw one panel, with a dot and its interval for each library.

    Libraries without a value are grey.
    """
    ranked = sorted(measured(rows), key=lambda row: -number(row, "steps_per_s"))
    absent = sorted((row for row in rows if row["status"] != "ok"), key=lambda row: row["library"])
    names = [_name(row["library"]) + ("*" if row["reason"] else "") for row in ranked]
    _name_lines(axes, [*names, *(_name(row["library"]) for row in absent)], fontsize=10)
    axes.grid(visible=True, axis="y")
    labels = axes.get_yticklabels()
    for place, row in enumerate(ranked):
        middle, low, high = interval(row)
        ours = row["library"] == OURS
        look = style_of(row["library"]) | {"linestyle": ""}
        ends = [[middle - low], [high - middle]]
        size = 9 if ours else 5
        axes.errorbar([middle], [place], xerr=ends, capsize=3, markersize=size, **look)
        ratio = number(row, "ratio")
        words = short_number(middle)
        words += "" if math.isnan(ratio) else f"; ours is {short_times(ratio)} times that"
        words_beside(axes, words, high, place, fontweight="bold" if ours else "normal")
        if ours:
            axes.axhspan(place - 0.5, place + 0.5, color=look["color"], alpha=0.1, linewidth=0)
            labels[place].set_fontweight("bold")
    for place, row in enumerate(absent, len(ranked)):
        labels[place].set_color("#888888")
        beside = {"xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(row["status"], (0.01, place), fontsize=8, color=GREY, **beside)


def _name(library: str) -> str:
    """Return the bare name of a library, or the label of another way to run one."""
    return library if library == library_of(library) else label_of(library)


def _compared(rows: Sequence[TextRow]) -> str:
    """Describe the comparison, and how a starred library differs."""
    notes = {library_of(row["library"]): row["reason"] for row in measured(rows) if row["reason"]}
    shown = (
        f"Auto-reset; median and 95% interval of {calls_of(rows)} calls. "
        "Each library in its own process, called in turn; ratios are medians over the rounds."
    )
    return "\n".join([shown, *(f"* {name}: {note}" for name, note in notes.items())])


def comparison_finding(rows: Sequence[TextRow]) -> str:
    """Return the ratio of our steps/s to the fastest other library's. Slower cases come first.

    Without a clear difference at every size it is no finding.
    """
    limits = {name for name, library in DECLARED.items() if library.limit}
    others = [
        row
        for row in measured(rows)
        if row["ratio"] and library_of(row["library"]) not in {OURS, *limits}
    ]
    env = measured(rows)[0]["env"]
    if not others:
        best = max(measured(rows), key=lambda row: number(row, "steps_per_s"))
        rate = short_number(number(best, "steps_per_s"))
        return f"{env}: {_name(best['library'])} reaches {rate} steps per second"
    closest: dict[tuple[str, str], TextRow] = {}
    for row in sorted(others, key=lambda other: -number(other, "ratio")):
        closest[row["num_envs"], row["agent"]] = row  # the smallest ratio comes last
    slower = [
        f"{short_times(number(row, 'ratio'))} times {_name(row['library'])} "
        f"at {environments(row['num_envs'])}"
        for row in closest.values()
        if interval(row, "ratio")[2] < 1
    ]
    if slower:
        return f"Myriad is slower on {env}: {', '.join(slower)}"
    if any(interval(row, "ratio")[1] <= 1 for row in closest.values()):
        return f"{env}: steps per second of every library"
    names = {_name(row["library"]) for row in closest.values()}
    fastest = names.pop() if len(names) == 1 else "the fastest other library"
    ordered = sorted(number(row, "ratio") for row in closest.values())
    many = span([short_times(ratio) for ratio in ordered])
    return f"Myriad steps {env} {many} times as fast as {fastest}"


def _name_lines(axes: Any, names: Sequence[str], fontsize: int = 8) -> None:
    """Name the lines of a figure from top to bottom."""
    axes.set_yticks(range(len(names)), names, fontsize=fontsize)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
