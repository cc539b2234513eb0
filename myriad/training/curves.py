"""Learning curves: the returns of evaluations over the steps of a training.

`TrainingResults.plot` draws those of one run. `plot_runs`, which `myriad plot` calls, draws those
of any number of run folders.
"""

import contextlib
import json
import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from myriad.envs import ENVIRONMENTS
from myriad.errors import InvalidArgumentError, NotInstalledError, UnknownNameError, shown
from myriad.files import read_text, replacing, user_path
from myriad.timing import mean_interval
from myriad.training.run_folder import Row, RunFolder, evaluation_row, rows_of, training_of

FORMATS = (".png", ".svg")
# Colours of Okabe and Ito, which survive colour blindness, and dashes for a grey printer.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_DASHES = ("-", "--", "-.", ":")
# Runs that differ only in these fields are trainings of the same settings.
_NO_SETTINGS = {
    *("seed", "seeds", "grid", "mapping", "scan_chunk_size", "compile_mode", "checkpoint_every_s"),
    *("monitor_every", "film_every", "log_to", "wandb_project", "wandb_name", "wandb_tags"),
}
# The interval of two seeds is so wide that nothing else of a plot could be seen.
_LEAST_SEEDS = 3
# The most settings that a legend names.
_NAMED = 3
_CAPTION = """Each point is the mean return of the greedy episodes of an evaluation.
Thick: mean over seeds, while all of them trained. Thin: each seed. Band, of three seeds or more:
Student's 95% interval of that mean, within the returns of the seeds."""

# The settings of a training by dotted name, and its evaluations by seed.
_Curve = tuple[Mapping[str, str], dict[int, list[Row]]]


def plot_runs(run_folders: Sequence[str | Path], output: str | Path | None = None) -> Any:
    """Draw the learning curves of runs, also of those that still train.

    Runs that differ only in their seeds are one curve: the mean over seeds, with Student's 95%
    interval of that mean from three seeds on. Each point of a grid is one as well. Each environment
    has a panel of its own.

    Args:
        run_folders: the runs' folders.
        output: a file to write, which ends in .png or .svg.

    Returns:
        matplotlib's `Figure`.

    Raises:
        InvalidArgumentError: there is no folder, or one holds no run or no evaluation yet or its
            files are damaged, or `output` has another ending or can't be written.
        NotInstalledError: matplotlib is not installed.

    Warns:
        UserWarning: two runs trained the same seed with the same settings. The longer one counts.
    """
    if isinstance(run_folders, str | Path):
        raise InvalidArgumentError("run_folders", "must be a list of folders", run_folders)
    if not run_folders:
        raise InvalidArgumentError("give the folder of at least one run to draw.")
    figure = learning_curves([_read(user_path(folder)) for folder in run_folders])
    if output is not None:
        save(figure, user_path(output))
    return figure


def learning_curves(runs: Iterable[tuple[Mapping[str, Any], Sequence[Row]]]) -> Any:
    """Draw runs, each of which is the table of its configuration and its evaluations."""
    panels: dict[str, list[_Curve]] = {}
    for settings, seeds in _curves(runs):
        panels.setdefault(settings["env"], []).append((settings, seeds))
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise NotInstalledError("a plot", "matplotlib", "bench") from error
    size = (1.5 + 5.5 * len(panels), 4.5)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    every_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (env, curves) in zip(every_axes, panels.items(), strict=True):
        for place, (label, (_, seeds)) in enumerate(zip(_labels(curves), curves, strict=True)):
            _draw(axes, seeds, label, place)
        axes.set(
            title=env,
            xlabel="steps of all environments together",
            ylabel="return (sum of the rewards of an episode)",
        )
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.supxlabel(_CAPTION, x=0.01, ha="left", fontsize=8, color="#444444")
    return figure


def save(figure: Any, output: Path) -> None:
    """Write a figure. The same figure always gives the same bytes.

    Raises:
        InvalidArgumentError: the file has another ending or can't be written.
    """
    from matplotlib import rc_context

    if output.suffix not in FORMATS:
        raise InvalidArgumentError("output", f"must end in {' or '.join(FORMATS)}", str(output))
    metadata = {"Date": None} if output.suffix == ".svg" else None
    with replacing(output) as new, rc_context({"svg.hashsalt": "myriad"}):
        figure.savefig(new, metadata=metadata)


def _read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return the configuration and the evaluations of a run, without importing what it names."""
    folder = RunFolder(path)
    try:
        settings = tomllib.loads(folder.config_toml())
        # A run that began with the weights of another is no seed of one that drew them.
        settings["start_from"] = shown(folder.environment().get("start_from"))
        settings.setdefault("seed", 0)
        for options in ("env_options", "agent_options"):
            settings[options] = dict(settings.get(options, {}))
        # A run that still trains may have written a part of its last line.
        text = read_text(folder.metrics).rpartition("\n")[0] if folder.metrics.exists() else ""
        rows: list[Row] = [evaluation_row(row) for row in rows_of(text)]
        rows = [
            {
                **{name: float(row[name]) for name in row if name.startswith("agent.")},
                "seed": int(row.get("seed", settings["seed"])),
                "steps": int(row["steps"]),
                "return": float(row["return"]),
            }
            for row in rows
        ]
        settings["env"], settings["agent"] = str(settings["env"]), str(settings["agent"])
    except InvalidArgumentError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is no run whose files are whole: {error!r}.") from error
    if not rows:
        raise InvalidArgumentError(f"{path} has no evaluation yet, so there is nothing to draw.")
    return settings, rows


def _curves(runs: Iterable[tuple[Mapping[str, Any], Sequence[Row]]]) -> list[_Curve]:
    """Put runs together whose settings are the same, seed by seed."""
    curves: dict[str, _Curve] = {}
    for config, rows in runs:
        own: dict[Any, list[Row]] = {}
        for row in rows:
            own.setdefault(training_of(row), []).append(row)
        for each in own.values():
            # A point of a grid is drawn as a run with these hyperparameters.
            settings = _settings(config) | {
                name: str(value) for name, value in each[0].items() if name.startswith("agent.")
            }
            _, seeds = curves.setdefault(json.dumps(settings, sort_keys=True), (settings, {}))
            seed = each[0].get("seed", config["seed"])
            if seed in seeds:
                warnings.warn(
                    f"two runs of {settings['agent']} on {settings['env']} have the seed {seed} "
                    "and the same settings, so they are one training: the longer one is drawn.",
                    stacklevel=4,
                )
            if len(each) > len(seeds.get(seed, [])):
                seeds[seed] = each
    return list(curves.values())


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what distinguishes a training from one of another seed, by dotted name."""
    flat = {name: str(value) for name, value in config.items() if not isinstance(value, Mapping)}
    for owner in ("env", "agent"):
        options = config.get(f"{owner}_options", {})
        flat |= {f"{owner}.{name}": str(value) for name, value in options.items()}
    with contextlib.suppress(UnknownNameError):  # Your own name may not be registered here.
        flat["env"] = ENVIRONMENTS.resolve(flat["env"])
    return {name: value for name, value in flat.items() if name not in _NO_SETTINGS}


def _labels(curves: Sequence[_Curve]) -> list[str]:
    """Name each curve of a panel by its agent and the settings in which it differs from others."""
    every = [settings for settings, _ in curves]
    labels = []
    for settings, seeds in curves:
        alike = [each for each in every if each["agent"] == settings["agent"]]
        differing = [name for name in settings if len({each.get(name) for each in alike}) > 1]
        named = [f"{name} = {settings[name]}" for name in differing[:_NAMED]]
        more = ["..."] if len(differing) > _NAMED else []
        number = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        labels.append(f"{', '.join([settings['agent'], *named, *more])} ({number})")
    return labels


def _draw(axes: Any, seeds: Mapping[int, Sequence[Row]], label: str, place: int) -> None:
    """Draw each seed as a thin line, and their mean with its interval where all have a value."""
    look = {"color": _COLORS[place % len(_COLORS)], "linestyle": _DASHES[place % len(_DASHES)]}
    by_steps = [{row["steps"]: row["return"] for row in rows} for rows in seeds.values()]
    if len(seeds) > 1:
        for returns in by_steps:
            axes.plot([*returns], [*returns.values()], **look, linewidth=0.6, alpha=0.5)
    shared = sorted(set.intersection(*map(set, by_steps)))
    values = [[returns[steps] for returns in by_steps] for steps in shared]
    axes.plot(shared, np.mean(values, axis=1), **look, marker=".", linewidth=1.8, label=label)
    if len(seeds) >= _LEAST_SEEDS and np.isfinite(values).all():
        # Student's interval of few seeds reaches to returns that no episode can have.
        ends = np.clip([mean_interval(each) for each in values], np.min(values), np.max(values))
        low, high = ends.T
        axes.fill_between(shared, low, high, color=look["color"], alpha=0.2, linewidth=0)
