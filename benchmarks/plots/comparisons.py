"""Figures that compare libraries, agents that learn, and programs that compile.

Each function takes the rows of one machine and returns a figure. Its title is the finding, which is
computed from the rows. Names are listed from top to bottom, and values lie along the x axis.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.harness.libraries import OURS, library_of
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
    median_of,
    number,
    numbers,
    page,
    short_number,
    short_times,
    span,
    style_of,
    words_beside,
)

# Neither is the colour of a library. One is light and one is dark, to tell them apart in grey.
_COLD, _CACHED = "#555555", "#BBBBBB"


def library_comparison(rows: Sequence[TextRow]) -> Any:
    """Return a figure of every library's steps/s, a panel per size, the fastest on top."""
    panels = {key: own for key, own in by_key(rows, "num_envs", "agent").items() if measured(own)}
    panels = dict(sorted(panels.items(), key=lambda panel: (float(panel[0][0]), panel[0][1])))
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
    for panel, ((num_envs, agent), own) in zip(axes[:, 0], panels.items(), strict=True):
        _standings(panel, own)
        panel.set_title(f"{environments(num_envs)}, {agent} actions", fontsize=10, loc="left")
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
        ratio = _times_ours(row, rows)
        words = short_number(middle)
        words += "" if ratio is None else f"; ours is {short_times(ratio)} times that"
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


def _times_ours(row: TextRow, rows: Sequence[TextRow]) -> float | None:
    """Return the ratio of our steps/s to the row's in the same run and size, or None."""
    # Only of the same run, since a ratio needs two libraries that were called in turn.
    same = ("timestamp", "num_envs", "agent")
    ours = [
        each
        for each in measured(rows)
        if each["library"] == OURS and all(each[key] == row[key] for key in same)
    ]
    if row["library"] == OURS or not ours:
        return None
    return number(ours[0], "steps_per_s") / number(row, "steps_per_s")


def _compared(rows: Sequence[TextRow]) -> str:
    """Describe the comparison, and how a starred library differs."""
    notes = {library_of(row["library"]): row["reason"] for row in measured(rows) if row["reason"]}
    shown = (
        f"Auto-reset; median and 95% interval of {calls_of(rows)} calls. "
        "Each library in its own process, called in turn; ratios are of the medians."
    )
    return "\n".join([shown, *(f"* {name}: {note}" for name, note in notes.items())])


def comparison_finding(rows: Sequence[TextRow]) -> str:
    """Return the ratio of our steps/s to the fastest other library's. Slower cases come first."""
    others = [
        (row, ratio)
        for row in measured(rows)
        if library_of(row["library"]) != OURS and (ratio := _times_ours(row, rows)) is not None
    ]
    env = measured(rows)[0]["env"]
    if not others:
        best = max(measured(rows), key=lambda row: number(row, "steps_per_s"))
        rate = short_number(number(best, "steps_per_s"))
        return f"{env}: {_name(best['library'])} reaches {rate} steps per second"
    closest: dict[tuple[str, str], tuple[TextRow, float]] = {}
    for row, ratio in sorted(others, key=lambda other: -other[1]):
        closest[row["num_envs"], row["agent"]] = row, ratio  # the smallest ratio comes last
    slower = [
        f"{short_times(ratio)} times {_name(row['library'])} at {environments(row['num_envs'])}"
        for row, ratio in closest.values()
        if ratio < 1
    ]
    if not slower:
        names = {_name(row["library"]) for row, _ in closest.values()}
        fastest = names.pop() if len(names) == 1 else "the fastest other library"
        many = span(
            [short_times(ratio) for ratio in sorted(ratio for _, ratio in closest.values())]
        )
        return f"Myriad steps {env} {many} times as fast as {fastest}"
    return f"Myriad is slower on {env}: {', '.join(slower)}"


def seconds_to_solve(rows: Sequence[TextRow]) -> Any:
    """Return a figure of the seconds to the target return: a dot per seed, a bar to the median."""
    groups = by_key(rows, "env", "library", "agent")
    shown = (
        "From the start of the process to an evaluation at the target return: a dot is a seed, "
        "the bar ends at the median, its hatched part is the median time to compile. "
        "Seeds that missed the target are counted, not drawn."
    )
    figure, ((axes,),) = page(solve_finding(rows), caption(rows, shown), 2 + 0.55 * len(groups))
    names = []
    for place, ((env, library, agent), own) in enumerate(groups.items()):
        done = measured(own)
        names.append(f"{label_of(library)} {agent}\n{env}\n{len(done)} of {len(own)} seeds")
        if not done:
            words_beside(axes, "no seed reached the target", 0, place, color=GREY)
            continue
        color = style_of(library)["color"]
        middle = median_of(done, "run_s")
        compile_s = median_of(done, "compile_s")
        seconds = numbers(done, "run_s")
        axes.barh(place, middle, height=0.6, color=color, alpha=0.35)
        axes.barh(place, compile_s, height=0.6, fill=False, edgecolor=color, hatch="////")
        dots = {"markersize": 5, "markeredgecolor": "white", "gid": "seeds"}
        axes.plot(seconds, [place] * len(seconds), "o", color=color, **dots)
        words = f"{middle:.3g} s, {compile_s:.2g} s of it compiling"
        words_beside(axes, words, max(seconds), place)
    _name_lines(axes, names)
    axes.set(xlim=(0, 1.45 * max(numbers(measured(rows), "run_s"))))
    axes.set_xlabel("seconds to the target return")
    return figure


def _name_lines(axes: Any, names: Sequence[str], fontsize: int = 8) -> None:
    """Name the lines of a figure from top to bottom."""
    axes.set_yticks(range(len(names)), names, fontsize=fontsize)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def solve_finding(rows: Sequence[TextRow]) -> str:
    """Return the time of each environment's quickest agent, and count the missed targets."""
    parts = []
    for (env,), own in by_key(measured(rows), "env").items():
        groups = by_key(own, "library", "agent")
        (library, agent), best = min(groups.items(), key=lambda group: median_of(group[1], "run_s"))
        seconds = numbers(best, "run_s")
        spread = f" ({min(seconds):.3g} to {max(seconds):.3g} s)" if len(seconds) > 1 else ""
        parts.append(f"{label_of(library)} {agent} solves {env} in {median(seconds):.3g} s{spread}")
    missed = len(rows) - len(measured(rows))
    text = "; ".join(parts) + (
        f"; {missed} of {len(rows)} trainings missed the target" if missed else ""
    )
    return text[0].upper() + text[1:]


def compile_time(rows: Sequence[TextRow]) -> Any:
    """Return a figure of each program's seconds to compile, cold and cached."""
    rows = measured(rows)
    programs = by_key(rows, "env", "agent", "library", "num_envs")
    shown = (
        f"Every launch in a process of its own; a bar is the median of {calls_of(rows)} launches."
    )
    height = 2.1 + 0.5 * len(programs)
    figure, ((axes,),) = page(compile_finding(rows), caption(rows, shown), height)
    looks = (
        ("compile", -0.2, _COLD, "cold"),
        ("compile_cached", 0.2, _CACHED, "from the persistent cache"),
    )
    for suite, shift, color, label in looks:
        for place, every in enumerate(programs.values()):
            own = [row for row in every if row["suite"] == suite]
            if not own:
                continue
            height = place + shift
            seconds = numbers(own, "compile_s")
            middle = median_of(own, "compile_s")
            axes.barh(height, middle, height=0.38, color=color, label=label)
            label = "_nolegend_"  # noqa: PLW2901  (once per look)
            if len(seconds) > 1:
                axes.plot(seconds, [height] * len(seconds), ".", color="#000000", markersize=5)
            words_beside(axes, f"{middle:.2g} s", max(seconds), height)
    _name_lines(axes, [_program(*key) for key in programs])
    axes.set(xlim=(0, 1.12 * max(numbers(rows, "compile_s"))))
    axes.set_xlabel("seconds to trace and compile")
    axes.legend(frameon=False)
    return figure


def _program(env: str, agent: str, library: str, num_envs: str) -> str:
    whose = "" if library == OURS else f"{label_of(library)}, "
    size = f", {environments(num_envs)}" if num_envs else ""
    return f"{env}\n{whose}{agent}{size}"


def compile_finding(rows: Sequence[TextRow]) -> str:
    """Say how long the programs take to compile, and how much of that the cache saves."""
    cold = _median_compile_s(rows, "compile")
    cached = _median_compile_s(rows, "compile_cached")
    ratios = sorted(cold[key] / cached[key] for key in cold.keys() & cached.keys())
    seconds = span([f"{value:.2g}" for value in sorted((cold or cached).values())])
    if not cold:
        return f"From the persistent cache a program is ready in {seconds} s"
    if not ratios:
        return f"A program compiles in {seconds} s"
    many = span([short_times(ratio) for ratio in ratios])
    verdict = f"the persistent cache makes that {many} times as fast"
    return f"A program compiles in {seconds} s; {verdict}"


def _median_compile_s(rows: Sequence[TextRow], suite: str) -> dict[tuple[str, ...], float]:
    of_suite = [row for row in measured(rows) if row["suite"] == suite]
    programs = by_key(of_suite, "env", "agent", "library", "num_envs")
    return {program: median_of(own, "compile_s") for program, own in programs.items()}
