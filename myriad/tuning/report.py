"""The files of a campaign: all trials as JSON, pages that open offline, and the best as TOML.

Every file name begins with the study's name. One `plotly.min.js` lies next to the pages.
"""

import dataclasses
import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
from optuna import visualization
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from myriad import __version__
from myriad.errors import InvalidArgumentError
from myriad.files import replacing
from myriad.settings import Settings
from myriad.training.config import TrainingConfig
from myriad.tuning.session import TuneResult
from myriad.tuning.settings import TuneSettings
from myriad.tuning.storage import read_storage
from myriad.tuning.study import FAILURE, STANDARD_ERROR

# The most parameters that a page of contours shows. Each pair of them is a plot.
_MOST_IN_CONTOUR = 4
_BUNDLE = "plotly.min.js"
# Settings that say how a campaign was run. They don't describe the campaign itself.
_UNSHOWN = {"storage", "output", "quiet", "fail_if_exists", "force", "trust"}


def write_report(result: TuneResult) -> list[Path]:
    """Write all files of a campaign to its output folder, each whole or not at all.

    Returns:
        the files. A page is left out if too few trials were completed to draw it.

    Raises:
        InvalidArgumentError: a file can't be written.
    """
    folder = result.settings.output
    name = str(result.settings.study_name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"{folder} can't be made: {error.strerror}.") from error
    written = [_write(folder / f"{name}_results.json", to_json(result))]
    if result.best is not None:
        config = best_config(result).to_toml()
        written.append(_write(folder / f"{name}_best.toml", config))
    pages = dict(_pages(result.study, result.settings))
    if pages:
        from plotly.offline import get_plotlyjs

        _write(folder / _BUNDLE, get_plotlyjs())
    written += [_write(folder / f"{name}_{kind}.html", page) for kind, page in pages.items()]
    return written


def best_config(result: TuneResult) -> TrainingConfig:
    """Return the training of the winner on the first of the trials' seeds.

    It sets everything that variables and `.env` could otherwise change.
    """
    fields = {"seed": result.settings.seed} | result.fields
    config = result.settings.config(**fields)
    return result.settings.config(**fields | _against_settings(config))


def _against_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the trials' values of the fields that variables and `.env` could change."""
    switches = Settings.read().switches()
    kept: dict[str, Any] = {"compile_mode": config.compile_mode} if "compile" in switches else {}
    options = [
        name
        for switch, name in (("bf16", "compute_dtype"), ("flash_attention", "attention"))
        if switch in switches
    ]
    if "batch_size" in switches and config.batch_size is not None:
        kept["batch_size"] = config.batch_size
    elif "batch_size" in switches:
        options.append("num_minibatches")
    agent = config.agent_options
    return kept | {f"agent.{name}": agent[name] for name in options if name in agent}


def train_command(config: TrainingConfig) -> str:
    """Return the `myriad train` command of a configuration, with all values that you gave it.

    Example:
        >>> from myriad.training.config import make_config
        >>> train_command(make_config("cartpole-control", "ppo", **{"agent.hidden_sizes": [8, 8]}))
        "myriad train --env cartpole-control --agent ppo --agent.hidden-sizes '[8, 8]'"
    """
    words = ["myriad", "train"]
    for name, value in config.given.items():
        if value != [] or "." in name:
            words += [f"--{name.replace('_', '-')}", _written(value)]
    return shlex.join(words)


def _written(value: Any) -> str:
    """Return a value as a flag takes it."""
    if value is None:
        return "none"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # The value inf, which JSON would write as Infinity.
    return value if isinstance(value, str) else json.dumps(value)


def command_to_go_on(settings: TuneSettings, left: int) -> str | None:
    """Return the command that resumes a campaign, without a password, or None if it isn't kept."""
    if settings.storage is None:
        return None
    words = ["myriad", "tune"]
    default = {field.name: field.default for field in dataclasses.fields(TuneSettings)}
    shown = dataclasses.replace(settings, n_trials=left, fail_if_exists=False, force=False)
    for name, before in default.items():
        value = getattr(shown, name)
        if name == "storage":
            value = read_storage(settings.storage)
        if name == "options" or (value == before and name not in ("n_trials", "agent")):
            continue
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        else:
            words += [flag, *map(str, value if isinstance(value, tuple) else [value])]
    for name, value in settings.options.items():
        words += [f"--{name.replace('_', '-')}", _written(value)]
    return shlex.join(words)


def to_json(result: TuneResult) -> str:
    """Return everything about a campaign as JSON. Non-finite numbers become null."""
    from myriad.hardware import fingerprint, package_versions

    settings = result.settings
    best = result.best
    packages = {name: version(name) for name in ("optuna", "plotly")}
    table = {
        "study": settings.study_name,
        "env": settings.env,
        "agent": settings.agent,
        "objectives": settings.objectives,
        "settings": {
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(settings)
            if field.name not in _UNSHOWN
        },
        "storage": str(read_storage(settings.storage)),
        "best": None if best is None else _trial(best) | {"fields": result.fields},
        "command": None if best is None else train_command(best_config(result)),
        "confirmation": _plain(result.confirmation),
        "validation": _plain(result.validation),
        "ensemble": _plain(result.ensemble),
        "is_interrupted": result.is_interrupted,
        "total_s": result.total_s,
        "compile_s": result.compile_s,
        "versions": {"myriad": __version__} | package_versions() | packages,
        "hardware": _plain(fingerprint()),
        "trials": [_trial(trial) for trial in result.study.get_trials(deepcopy=False)],
    }
    return json.dumps(_finite(table), indent=1, default=str, allow_nan=False) + "\n"


def _trial(trial: FrozenTrial) -> dict[str, Any]:
    attributes = trial.user_attrs
    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "values": trial.values,
        "standard_error": attributes.get(STANDARD_ERROR),
        "intermediate_values": trial.intermediate_values,
        "seeds": attributes.get("seeds"),
        "failure": attributes.get(FAILURE),
        "started": trial.datetime_start,
        "duration_s": None if trial.duration is None else trial.duration / timedelta(seconds=1),
        "attributes": attributes,
    }


def _plain(thing: Any) -> Any:
    return dataclasses.asdict(thing) if dataclasses.is_dataclass(thing) else thing  # pyright: ignore[reportArgumentType]


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> Path:
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
    return path


def _pages(study: optuna.Study, settings: TuneSettings) -> Iterator[tuple[str, str]]:
    """Yield the pages for which there are enough trials, each with its kind."""
    for kind, draw in _figures(study, settings).items():
        with warnings.catch_warnings():
            # Optuna warns of experimental plots and of plots that it leaves empty.
            warnings.simplefilter("ignore")
            try:
                figure = draw()
            except (ValueError, RuntimeError, ZeroDivisionError):
                continue  # There are too few trials, or all have the same value.
        if figure is not None:
            figure.update_layout(title_text=f"{settings.study_name}: {kind}")
            yield kind, figure.to_html(include_plotlyjs="directory")


def _figures(study: optuna.Study, settings: TuneSettings) -> dict[str, Callable[[], Any]]:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not done:
        return {}
    objective = settings.objectives[0]
    arguments: dict[str, Any] = {"target_name": objective}
    if len(settings.objectives) > 1:
        arguments["target"] = lambda trial: trial.values[0]
    varied = [name for name in done[0].params if len({str(t.params.get(name)) for t in done}) > 1]

    def contour() -> Any:
        if len(varied) < 2:
            return None
        params = list(_importances(study, arguments))[:_MOST_IN_CONTOUR]
        return visualization.plot_contour(study, params, **arguments)

    figures: dict[str, Callable[[], Any]] = {
        "history": lambda: visualization.plot_optimization_history(study, **arguments),
        "importances": lambda: _bars(_importances(study, arguments), objective),
        "parallel": lambda: visualization.plot_parallel_coordinate(study, **arguments),
        "slice": lambda: visualization.plot_slice(study, **arguments),
        "contour": contour,
    }
    if len(settings.objectives) in (2, 3):
        names: list[str] = [*settings.objectives]
        figures["pareto"] = lambda: visualization.plot_pareto_front(study, target_names=names)
    return figures


def _importances(study: optuna.Study, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return PED-ANOVA's share of every parameter, the greatest first."""
    return get_param_importances(
        study, evaluator=PedAnovaImportanceEvaluator(), target=arguments.get("target")
    )


def _bars(importances: Mapping[str, float], objective: str) -> Any:
    from plotly.graph_objects import Bar, Figure

    names = list(importances)[::-1]
    shares = list(importances.values())[::-1]
    figure = Figure(Bar(x=shares, y=names, orientation="h", marker_color="#0072B2"))
    return figure.update_layout(
        xaxis_title=f"share of the {objective} that it explains (PED-ANOVA)", yaxis_title=None
    )
