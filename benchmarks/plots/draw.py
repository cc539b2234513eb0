"""Select the rows of each plot, and write the plot as PNG and as SVG.

A plot shows one machine, that of the newest row. If a size was measured more than once, the newest
row counts. Each environment has its own plot, and each agent with which libraries are compared. The
plain name is that of CartPole, or else of the newest environment, with random actions.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.libraries import OURS
from benchmarks.harness.results import (
    CSV_FOLDER,
    PLOTS_FOLDER,
    TextRow,
    is_table_of_results,
    make_folder,
    read_csv,
)
from benchmarks.plots.comparisons import library_comparison
from benchmarks.plots.scaling import (
    memory_scaling,
    scaling_efficiency,
    scan_chunk_sensitivity,
    throughput_scaling,
)
from benchmarks.plots.style import by_key, measured

FORMATS = ("png", "svg")
_FIRST_ENV = "cartpole-control"  # the environment whose plots have the names in the documentation
_MACHINE = ("device", "device_name", "cores")


@dataclass(frozen=True)
class Selection:
    """The rows of a suite that one plot shows.

    Attributes:
        same: the columns that are constant in a plot, with the newest row's values.
        distinct: the columns whose combinations are each shown once, by their newest row.
    """

    same: tuple[str, ...] = ("env", "agent")
    distinct: tuple[str, ...] = ("library", "num_envs")


@dataclass(frozen=True)
class Plot:
    """A plot: the name of its files, the suites of its rows, and the function that draws it.

    Each combination of the columns `apart` has a picture of its own.
    """

    file: str
    suites: dict[str, Selection] = field(repr=False)
    figure: Callable[[Sequence[TextRow]], Any]
    apart: tuple[str, ...] = ("env",)


PLOTS = {
    "throughput": Plot("throughput_scaling", {"throughput": Selection()}, throughput_scaling),
    "efficiency": Plot("scaling_efficiency", {"throughput": Selection()}, scaling_efficiency),
    "memory": Plot(
        "memory_scaling",
        {
            "memory_envs": Selection(),
            "memory_scan": Selection(("env", "agent", "num_envs"), ("library", "scan_chunk_size")),
        },
        memory_scaling,
    ),
    "scan_chunk": Plot(
        "scan_chunk_sensitivity",
        {"scan_chunk": Selection(distinct=("library", "num_envs", "scan_chunk_size"))},
        scan_chunk_sensitivity,
    ),
    "comparison": Plot(
        "library_comparison",
        {"comparison": Selection()},
        library_comparison,
        apart=("env", "agent"),
    ),
}


def draw(
    source: Path, folder: Path, plot_types: Sequence[str], env: str | None = None
) -> list[Path]:
    """Draw the plots that the rows allow, and return the PNG and SVG of each.

    Args:
        source: a CSV file, or a folder, of which all files with the columns of results are read.
        folder: the folder for the pictures.
        plot_types: names of `PLOTS`.
        env: the only environment to draw. By default all are drawn, and CartPole or else the newest
            gets the plain name.

    Raises:
        InvalidArgumentError: there is nothing to draw, `source` is a file with other columns, a
            table of results is damaged, or a picture can't be written.
        NotInstalledError: matplotlib is absent.
    """
    from myriad.errors import InvalidArgumentError

    if not source.exists():
        raise InvalidArgumentError(
            f"{source} does not exist; `make bench` measures the first results."
        )
    files = [source] if source.is_file() else sorted(source.glob("*.csv"))
    # The folder of results also holds other tables, such as those of the gate's self-test.
    rows = [
        row
        for file in files
        if file == source or is_table_of_results(file)
        for row in read_csv(file)
    ]
    paths = []
    for plot in (PLOTS[name] for name in plot_types):
        for name, apart in _apart(rows, plot, env):
            if shown := select(apart, plot):
                make_folder(folder)
                paths += _save(plot.figure(shown), folder / name)
    if not paths:
        kinds = f"{plot_types[0]} results" if len(plot_types) == 1 else "results"
        raise InvalidArgumentError(
            f"{source} holds no {kinds} to draw; `make bench` measures the first."
        )
    return paths


def draw_run(source: Path, env: str) -> None:
    """Draw the throughput of the run that wrote a file. Print the path, or why there is none."""
    from myriad.errors import MyriadError

    # Earlier runs in the default folder are included, so that a run of one more size keeps the
    # plot's other sizes.
    folder = source.parent
    if folder == CSV_FOLDER:
        source = CSV_FOLDER
        folder = PLOTS_FOLDER
    try:
        plot, *_ = draw(source, folder, ["throughput"], env)
        print(f"plot:           {plot}")
    except MyriadError as error:
        print(f"no plot: {error}", file=sys.stderr)


def _apart(
    rows: Sequence[TextRow], plot: Plot, wanted: str | None
) -> list[tuple[str, list[TextRow]]]:
    """Return the name of the files and the rows of each picture of a plot."""
    rows = [row for row in rows if row["suite"] in plot.suites]
    done = sorted(measured(rows), key=lambda row: row["timestamp"])
    envs = {row["env"] for row in done}
    newest = done[-1]["env"] if done else ""
    plain = {"env": _FIRST_ENV if _FIRST_ENV in envs else newest, "agent": "random"}
    pictures = []
    for values, shown in sorted(by_key(rows, *plot.apart).items()):
        own = dict(zip(plot.apart, values, strict=True))
        if own["env"] in envs and wanted in (None, own["env"]):
            others = [each for column, each in own.items() if each != plain[column]]
            name = "_".join([plot.file, *(re.sub(r"[^0-9A-Za-z]+", "_", each) for each in others)])
            pictures.append((name, shown))
    return pictures


def select(rows: Sequence[TextRow], plot: Plot) -> list[TextRow]:
    """Return the rows that the plot shows: those of the newest machine."""
    rows = [row for row in rows if row["suite"] in plot.suites]
    if not measured(rows):
        return []
    newest_row = _last(measured(rows))
    runs = {row["timestamp"] for row in rows if _agree(row, newest_row, _MACHINE)}
    # Libraries without JAX run on the processor, even beside ours on a GPU. One that never
    # started names no machine. Rows that ran in turn with ours belong to our machine.
    rows = [row for row in rows if _agree(row, newest_row, _MACHINE) or row["timestamp"] in runs]
    return [
        row
        for suite, selection in plot.suites.items()
        for row in _newest([row for row in rows if row["suite"] == suite], selection)
    ]


def _newest(rows: Sequence[TextRow], selection: Selection) -> list[TextRow]:
    """Keep the newest row of each combination, measured like the newest row of all."""
    if not measured(rows):
        return []
    last = _last(measured(rows))
    latest: dict[tuple[tuple[float, str], ...], TextRow] = {}
    for row in sorted(rows, key=lambda row: row["timestamp"]):
        if _agree(row, last, selection.same):
            latest[tuple(_in_order(row[column]) for column in selection.distinct)] = row
    return [latest[key] for key in sorted(latest)]


def _last(rows: Sequence[TextRow]) -> TextRow:
    """Return the newest row, preferably of our own library."""
    return max(rows, key=lambda row: (row["timestamp"], row["library"] == OURS))


def _agree(row: TextRow, other: TextRow, columns: Sequence[str]) -> bool:
    return all(row[column] == other[column] for column in columns)


def _in_order(value: str) -> tuple[float, str]:
    """Return a key that sorts numbers by size and other texts by letters."""
    try:
        return float(value), ""
    except ValueError:
        return 0.0, value


def _save(figure: Any, stem: Path) -> list[Path]:
    """Write the figure in each format. The same figure always gives the same bytes."""
    from matplotlib import rc_context

    from myriad.files import replacing

    paths = []
    for kind in FORMATS:
        path = stem.with_name(f"{stem.name}.{kind}")
        metadata = {"Date": None} if kind == "svg" else None
        # By default matplotlib uses random names in an SVG, and dates it.
        with replacing(path) as part, rc_context({"svg.hashsalt": stem.name}):
            figure.savefig(part, format=kind, metadata=metadata)
        paths.append(path)
    return paths
