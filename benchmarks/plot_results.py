"""Draw what the results folder holds.

    python benchmarks/plot_results.py [--input FILE] [--plot-type throughput] [--output FOLDER]

A plot shows one machine and one environment, those of the newest row; where a size was measured more than once, the
newest row counts.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import CSV_FOLDER, PLOTS_FOLDER, TextRow, read_csv
from benchmarks.workloads import library_of

# Okabe and Ito's colours, told apart under every colour blindness; marker and dashes tell them apart in grey.
STYLES = {
    "myriad": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "gymnax": {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    "myriad-plain": {"color": "#56B4E9", "marker": "^", "linestyle": "-."},
    "gymnax-configured": {"color": "#E69F00", "marker": "D", "linestyle": ":"},
    "myriad-jax": {"color": "#009E73", "marker": "v", "linestyle": "--"},
    "myriad-jax-configured": {"color": "#009E73", "marker": "<", "linestyle": ":"},
    "jumanji": {"color": "#CC79A7", "marker": "P", "linestyle": "--"},
    "jumanji-configured": {"color": "#CC79A7", "marker": "p", "linestyle": ":"},
    "numpy": {"color": "#000000", "marker": "X", "linestyle": ":"},
}
LABELS = {
    "myriad-plain": "myriad without configure()",
    "gymnax-configured": "gymnax with our XLA options",
    "myriad-jax": "myriad-jax (other kinetics)",
    "myriad-jax-configured": "myriad-jax with our XLA options",
    "jumanji": "jumanji (other rules)",
    "jumanji-configured": "jumanji with our XLA options",
}
# The peers that a title may compare with.
PEERS = ("gymnax", "myriad-jax", "jumanji")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; where there is nothing to draw, say so and return 2."""
    from myriad.errors import MyriadError

    parser = argparse.ArgumentParser(prog="python benchmarks/plot_results.py", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--input", type=Path, default=CSV_FOLDER, help="CSV file or folder of them (default: results/csv)"
    )
    parser.add_argument("--plot-type", choices=PLOTS, help="what to draw (default: all that the rows allow)")
    parser.add_argument("--output", type=Path, default=PLOTS_FOLDER, help="folder (default: results/plots)")
    options = parser.parse_args(argv)
    try:
        for path in draw(options.input, options.output, [options.plot_type] if options.plot_type else list(PLOTS)):
            print(path)
    except MyriadError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def draw(source: Path, folder: Path, plot_types: Sequence[str]) -> list[Path]:
    """Draw the plots for which `source`, a CSV file or a folder of them, has rows; return their paths.

    Raises:
        InvalidArgumentError: there is nothing to draw.
        NotInstalledError: matplotlib is absent.
    """
    from myriad.errors import InvalidArgumentError

    if not source.exists():
        raise InvalidArgumentError(f"{source} does not exist; `make bench` measures the first results.")
    files = [source] if source.is_file() else sorted(source.glob("*.csv"))
    rows = [row for file in files for row in read_csv(file) if row["status"] == "ok"]
    paths = []
    for plot_type in plot_types:
        suite, file_name, plot = PLOTS[plot_type]
        of_suite = [row for row in rows if row["suite"] == suite]
        if of_suite:
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(_save(plot(newest(of_suite)), folder / file_name))
    if not paths:
        kinds = " or ".join(plot_types)
        raise InvalidArgumentError(f"{source} holds no {kinds} results to draw; `make bench` measures the first.")
    return paths


def newest(rows: Sequence[TextRow]) -> list[TextRow]:
    """Keep the machine and environment of the newest row, and the newest row of each library and size."""
    rows = sorted(rows, key=lambda row: row["timestamp"])
    same = ("device", "device_name", "cores", "env", "agent")
    of_machine = [row for row in rows if all(row[column] == rows[-1][column] for column in same)]
    latest = {(row["library"], int(row["num_envs"])): row for row in of_machine}
    return [latest[key] for key in sorted(latest)]


def throughput_scaling(rows: Sequence[TextRow]) -> Any:
    """Return a figure of steps/s over the number of environments, one line per library, with 95% intervals."""
    figure, axes = _figure(xlabel="environments side by side", ylabel="environment steps per second")
    for library, style in STYLES.items():
        of_library = [row for row in rows if row["library"] == library]
        if not of_library:
            continue
        sizes = _floats(of_library, "num_envs")
        middle, low, high = (_floats(of_library, f"steps_per_s{end}") for end in ("", "_low", "_high"))
        axes.fill_between(sizes, low, high, color=style["color"], alpha=0.25, linewidth=0)
        errors = [
            [m - lo for m, lo in zip(middle, low, strict=True)],
            [hi - m for m, hi in zip(middle, high, strict=True)],
        ]
        axes.errorbar(sizes, middle, yerr=errors, label=LABELS.get(library, library), capsize=3, markersize=6, **style)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: short_number(value))
        axis.set_minor_formatter("")
    axes.set_ylim(_decades(_floats(rows, "steps_per_s_low") + _floats(rows, "steps_per_s_high")))
    axes.set_title(finding(rows), loc="left", fontsize=12, fontweight="bold", wrap=True)
    axes.legend(frameon=False)
    axes.annotate(caption(rows), (0, -0.17), xycoords="axes fraction", fontsize=8, color="#444444", va="top")
    return figure


def finding(rows: Sequence[TextRow]) -> str:
    """Say in one line what the rows show: how many times the peer's steps/s, or the best where there is no peer."""
    rates = {(row["library"], row["num_envs"], row["timestamp"]): float(row["steps_per_s"]) for row in rows}
    ours = {tuple(run): rate for (library, *run), rate in rates.items() if library == "myriad"}
    for peer in PEERS:
        times = [rate / rates[peer, *run] for run, rate in ours.items() if (peer, *run) in rates]
        if times:
            least, most = (f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" for ratio in (min(times), max(times)))
            many = least if least == most else f"{least} to {most}"
            return f"Myriad steps {rows[0]['env']} {many} times as fast as {peer}"
    return f"{rows[0]['env']}: up to {short_number(max(rates.values()))} steps per second"


def caption(rows: Sequence[TextRow]) -> str:
    """Say what a reader needs to judge the figure: machine, versions, commit, what a step is, when it was measured."""
    first = rows[0]
    commits = sorted({row["commit"][:10] or "unknown" for row in rows})
    memory = f", {int(first['memory_total_bytes']) / 2**30:.0f} GiB" if first["memory_total_bytes"] else ""
    versions = sorted({f"{library_of(row['library'])} {row['library_version']}" for row in rows}, reverse=True)
    days = sorted({f"{row['timestamp'][:4]}-{row['timestamp'][4:6]}-{row['timestamp'][6:8]}" for row in rows})
    counts = sorted(int(row["samples"]) for row in rows)
    calls = f"{counts[0]} to {counts[-1]}" if counts[0] != counts[-1] else f"{counts[0]}"
    machine = f"{first['device_name']}, {first['cores']} cores{memory}."
    made_by = f"{', '.join(versions)}, jax {first['jax_version']}, commit {', '.join(commits)}."
    shown = f"{first['agent'].capitalize()} actions, auto-reset; median and 95% interval of {calls} calls."
    how = f"Each side in its own process, alternated; measured {' to '.join(dict.fromkeys((days[0], days[-1])))}."
    return f"{machine} {made_by}\n{shown}\n{how}"


def short_number(value: float) -> str:
    """Write a number as the axes do: 100, 10 k, 2.5 M, 1 G."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _figure(xlabel: str, ylabel: str) -> tuple[Any, Any]:
    """Return a figure and its axes, drawn without pyplot and so without its global state."""
    from myriad.errors import NotInstalledError

    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NotInstalledError("plots need matplotlib; `pip install 'myriad[bench]'` installs it.") from error
    figure = Figure(figsize=(8, 5.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten that enclose the values, so that a slope never comes from a cut axis."""
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values) * 1.05))


def _floats(rows: Sequence[TextRow], column: str) -> list[float]:
    return [float(row[column]) for row in rows]


def _save(figure: Any, path: Path) -> Path:
    """Write the figure whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    figure.savefig(part, format="png")
    return part.replace(path)


# Plot types by name: the suite whose rows they draw, the file they write, and what draws it.
PLOTS: dict[str, tuple[str, str, Callable[[Sequence[TextRow]], Any]]] = {
    "throughput": ("throughput", "throughput_scaling.png", throughput_scaling),
}

if __name__ == "__main__":
    sys.exit(main())
