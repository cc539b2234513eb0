"""Select the rows of each plot, and write the plot as PNG and as SVG.

A plot shows one machine and one commit, those of the newest row. If a size was measured more than
once, the newest row counts. Rates beside other libraries are at each library's best scan chunk, so
both plots of rates join the rows of both suites. Each environment has its own plot, and each agent
with which libraries are compared. The plain name is that of CartPole, or else of the newest
environment, with random actions.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.registry import OURS
from benchmarks.harness.results import (
    CSV_FOLDER,
    PLOTS_FOLDER,
    is_table_of_results,
    make_folder,
    read_table,
)
from benchmarks.plots.figures import (
    library_comparison,
    memory_scaling,
    scaling_efficiency,
    scan_chunk_sensitivity,
    throughput_scaling,
)
from benchmarks.plots.style import applied, interval, measured, peer_of

FORMATS = ("png", "svg")
_FIRST_ENV = "cartpole-control"  # the environment whose plots have the names in the documentation
_MACHINE = ["device", "device_name", "cores", "commit"]
_RATES = ("throughput", "comparison")
_SIZE = ["library", "num_envs", "scan_chunk_size"]  # of which the newest row counts


@dataclass(frozen=True)
class Plot:
    """A plot: the name of its files, the suites of its rows, and the function that draws it.

    Each combination of the columns `apart` has a picture of its own. Each library and size has one
    row in a plot of rates, chosen among those of all suites of rates.
    """

    file: str
    suites: tuple[str, ...]
    figure: Callable[[Any], Any]
    apart: tuple[str, ...] = ("env",)

    @property
    def at_best(self) -> bool:
        """Whether it is a plot of rates."""
        return self.suites[0] in _RATES


PLOTS = {
    "throughput": Plot("throughput_scaling", ("throughput",), throughput_scaling),
    "efficiency": Plot("scaling_efficiency", ("throughput",), scaling_efficiency),
    "memory": Plot("memory_scaling", ("memory_envs", "memory_scan"), memory_scaling),
    "scan_chunk": Plot("scan_chunk_sensitivity", ("scan_chunk",), scan_chunk_sensitivity),
    "comparison": Plot(
        "library_comparison", ("comparison",), library_comparison, apart=("env", "agent")
    ),
}


def draw(
    source: Path, folder: Path, plot_types: Sequence[str], env: str | None = None
) -> list[Path]:
    """Draw the plots that the rows allow, and return the PNG and SVG of each.

    Of a folder all files with the columns of results are read. Without an `env` all environments
    are drawn, and CartPole or else the newest gets the plain name.

    Raises:
        InvalidArgumentError: there is nothing to draw, `source` is a file with other columns, a
            table of results is damaged, or a picture can't be written.
        NotInstalledError: matplotlib is absent.
    """
    import pandas as pd

    from myriad.errors import InvalidArgumentError

    if not source.exists():
        raise InvalidArgumentError(
            f"{source} does not exist; `make bench` measures the first results."
        )
    # The folder of results also holds other tables, such as those of the gate's self-test.
    files = [source]
    if source.is_dir():
        files = [each for each in sorted(source.glob("*.csv")) if is_table_of_results(each)]
    paths = []
    if files:
        rows = pd.concat(map(read_table, files), ignore_index=True)
        with applied():
            for plot in (PLOTS[name] for name in plot_types):
                for name, shown in _pictures(rows, plot, env):
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


def _pictures(rows: Any, plot: Plot, wanted: str | None) -> list[tuple[str, Any]]:
    """Return the name of the files and the rows of each picture of a plot."""
    every, rows = rows, rows[rows.suite.isin(plot.suites)]
    done = measured(rows)
    if done.empty:
        return []
    newest = done.sort_values("timestamp", kind="stable").env.iloc[-1]
    plain = {"env": _FIRST_ENV if (done.env == _FIRST_ENV).any() else newest, "agent": "random"}
    pictures = []
    for values, own in rows.groupby(list(plot.apart)):
        own_values = zip(plot.apart, values, strict=True)
        others = [value for column, value in own_values if value != plain[column]]
        name = "_".join([plot.file, *(re.sub(r"[^0-9A-Za-z]+", "_", each) for each in others)])
        if plot.at_best:
            joined = every.suite.isin(_RATES) & every.env.isin(own.env)
            own = every[joined & every.agent.isin(own.agent)]  # noqa: PLW2901
        shown = select(own, plot)
        if not shown.empty and wanted in (None, own.env.iloc[0]):
            pictures.append((name, shown))
    return pictures


def select(rows: Any, plot: Plot) -> Any:
    """Return the rows that the plot shows: those of the newest machine and commit."""
    import pandas as pd

    suites = _RATES if plot.at_best else plot.suites
    rows = rows[rows.suite.isin(suites)].sort_values("timestamp", kind="stable")
    if measured(rows).empty:
        return rows[:0]
    here = _like_newest(rows, _MACHINE)
    # Libraries without JAX run on the processor, even beside ours on a GPU. One that never
    # started names no machine. Rows that ran in turn with ours belong to our machine.
    rows = rows[here | rows.timestamp.isin(rows.timestamp[here])]
    if plot.at_best:
        return at_best_chunks(rows[_like_newest(rows, ["env", "agent"])])
    parts = []
    for suite, own in rows.groupby("suite"):
        if not measured(own).empty:
            same = ["env", "agent", *(["num_envs"] if suite == "memory_scan" else [])]
            own = own[_like_newest(own, same)]  # noqa: PLW2901
            parts.append(own.drop_duplicates(_SIZE, keep="last").sort_values(_SIZE))
    return pd.concat(parts)


def at_best_chunks(rows: Any) -> Any:
    """Return the row of each library and size at its best scan chunk, and what to divide by.

    A peer may be at its best with our XLA options. `library` then names the peer, and `ran_as` says
    how it ran. The ratio is our steps/s over the row's. Its interval reaches from our lower end
    over their upper end to the reverse, so it errs on the wide side.
    """
    import pandas as pd

    # Imported here, since asv and the gate may import the suites from a folder without `ci`.
    from ci.site.best_chunks import best_chunks

    newest_first = rows.sort_values("timestamp", kind="stable", ascending=False).to_dict("records")
    found = best_chunks(newest_first, peer_of)
    places = {(peer_of(row["library"]), row["num_envs"]): row for row in reversed(newest_first)}
    best = pd.DataFrame(
        row | {"library": library, "ran_as": row["library"], "searched": found.searched}
        for (library, _), row in {**places, **found.best}.items()
    ).sort_values(["library", "num_envs"], ignore_index=True)
    middle, low, high = interval(best)
    ours = best.library == OURS
    for name, of_ours, theirs in (
        ("ratio", middle, middle),
        ("ratio_low", low, high),
        ("ratio_high", high, low),
    ):
        best[name] = best.num_envs.map(of_ours[ours].set_axis(best.num_envs[ours])) / theirs
    best.loc[ours, ["ratio", "ratio_low", "ratio_high"]] = math.nan
    return best


def _like_newest(rows: Any, columns: list[str]) -> Any:
    """Say which rows, sorted by time, agree with the newest measured one, preferably of ours."""
    last = measured(rows)
    last = last[last.timestamp == last.timestamp.iloc[-1]]
    ours = last[last.library == OURS]
    newest = (last if ours.empty else ours).iloc[-1]
    return (rows[columns] == newest[columns]).all(axis=1)


def _save(figure: Any, stem: Path) -> list[Path]:
    """Write the figure in each format. The same figure always gives the same bytes."""
    from myriad.files import replacing

    paths = []
    for kind in FORMATS:
        path = stem.with_name(f"{stem.name}.{kind}")
        metadata = {"Date": None} if kind == "svg" else None  # by default matplotlib dates an SVG
        with replacing(path) as part:
            figure.savefig(part, format=kind, metadata=metadata)
        paths.append(path)
    return paths
