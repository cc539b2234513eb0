"""What a campaign leaves: its files, and its summary for the terminal.

The files are all trials as JSON, pages that open offline, and the best as TOML. Every file name
begins with the study's name. One `plotly.min.js` lies next to the pages.
"""

import dataclasses
import json
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
from optuna import visualization
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from myriad.files import replacing, write_errors_explained
from myriad.training.config import TrainingConfig
from myriad.tuning.campaign import TuneResult
from myriad.tuning.objective import Score
from myriad.tuning.settings import TuneSettings
from myriad.tuning.storage import shown_storage
from myriad.tuning.study import FAILURE, best_trials, retried

# The most parameters that a page of contours shows. Each pair of them is a plot.
_MOST_IN_CONTOUR = 4
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
    with write_errors_explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {"results.json": to_json(result)}
    if result.best is not None:
        texts["best.toml"] = best_config(result).to_toml()
    written = []
    for name, content in [*texts.items(), *_figures(result.study, result.settings)]:
        path = folder / f"{result.settings.study_name}_{name}"
        with replacing(path) as new:
            if isinstance(content, str):
                new.write_text(content, encoding="utf-8")
            else:
                # The first one also writes the library, unless it is there already.
                content.write_html(new, include_plotlyjs="directory")
        written.append(path)
    return written


def best_config(result: TuneResult) -> TrainingConfig:
    """Return the training of the winner on the first of the trials' seeds.

    It sets everything that variables and `.env` could otherwise change.
    """
    fields = {"seed": result.settings.seed} | result.fields
    config = result.settings.config(**fields)
    fields["compile_mode"] = config.compile_mode
    if config.batch_size is not None:
        fields["batch_size"] = config.batch_size
    for name in ("compute_dtype", "attention", "num_minibatches"):
        if name in config.agent_options and (name != "num_minibatches" or not config.batch_size):
            fields[f"agent.{name}"] = config.agent_options[name]
    return result.settings.config(**fields)


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
    if isinstance(value, str | float):
        return str(value)
    return "none" if value is None else json.dumps(value)


def to_json(result: TuneResult) -> str:
    """Return everything about a campaign as JSON. Non-finite numbers become null."""
    from pydantic_core import to_json as written

    from myriad.engine.machine import fingerprint, package_versions

    settings = result.settings
    best = result.best
    packages = {name: version(name) for name in ("optuna", "plotly")}
    table = {
        "study": settings.study_name,
        "env": settings.env,
        "agent": settings.agent,
        "objectives": settings.objectives,
        "seeds": settings.seeds(),
        "settings": {
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(settings)
            if field.name not in _UNSHOWN
        },
        "storage": shown_storage(settings.storage),
        "best": None if best is None else _trial(best) | {"fields": result.fields},
        "command": None if best is None else train_command(best_config(result)),
        "confirmation": result.confirmation,
        "validation": result.validation,
        "ensemble": result.ensemble,
        "is_interrupted": result.is_interrupted,
        "total_s": result.total_s,
        "compile_s": result.compile_s,
        "versions": package_versions() | packages,
        "hardware": fingerprint(),
        "trials": [_trial(trial) for trial in result.study.get_trials(deepcopy=False)],
    }
    return written(table, indent=1, inf_nan_mode="null", fallback=str).decode() + "\n"


def _trial(trial: FrozenTrial) -> dict[str, Any]:
    attributes = trial.user_attrs
    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "values": trial.values,
        "intermediate_values": trial.intermediate_values,
        "failure": attributes.get(FAILURE),
        "started": trial.datetime_start,
        "duration_s": None if trial.duration is None else trial.duration / timedelta(seconds=1),
        "attributes": attributes,
    }


def _figures(study: optuna.Study, settings: TuneSettings) -> Iterator[tuple[str, Any]]:
    """Yield Optuna's figures for which there are enough trials, each with the name of its page."""
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return
    objectives: list[str] = [*settings.objectives]
    several = len(objectives) > 1
    target = (lambda trial: trial.values[0]) if several else None
    same: dict[str, Any] = {"target": target, "target_name": objectives[0]}
    evaluator = PedAnovaImportanceEvaluator()

    def contour() -> Any:
        shares = get_param_importances(study, evaluator=evaluator, target=target)
        return visualization.plot_contour(study, list(shares)[:_MOST_IN_CONTOUR], **same)

    figures: dict[str, Callable[[], Any]] = {
        "history": lambda: visualization.plot_optimization_history(study, **same),
        "importances": lambda: visualization.plot_param_importances(study, evaluator, **same),
        "parallel": lambda: visualization.plot_parallel_coordinate(study, **same),
        "slice": lambda: visualization.plot_slice(study, **same),
        "contour": contour,
    }
    if several:
        figures["pareto"] = lambda: visualization.plot_pareto_front(study, target_names=objectives)
    for kind, draw in figures.items():
        with warnings.catch_warnings():
            # Optuna warns of experimental plots and of plots that it leaves empty.
            warnings.simplefilter("ignore")
            try:
                figure = draw()
            except (ValueError, RuntimeError, ZeroDivisionError):
                continue  # There are too few trials, or all have the same value.
        figure.update_layout(title_text=f"{settings.study_name}: {kind}")
        yield f"{kind}.html", figure


def summary(result: TuneResult, files: Sequence[Path]) -> str:
    """Return the results of a campaign: the best next to the default, and how to train it."""
    settings = result.settings
    trials = result.study.get_trials(deepcopy=False)
    again = retried(trials)
    trials = [trial for trial in trials if trial.number not in again]
    states = Counter(trial.state for trial in trials)
    counted = [
        f"{states[state]} {word}"
        for state, word in (
            (TrialState.COMPLETE, "completed"),
            (TrialState.PRUNED, "pruned"),
            (TrialState.FAIL, "failed"),
            (TrialState.WAITING, "waiting"),
        )
        if states[state]
    ]
    ended = ", ".join(counted) or "no trials"
    took = f"{result.total_s:.1f} s"
    if settings.n_jobs == 1 and result.compile_s:
        count = len(result.compile_s)
        sets = "set of programs" if count == 1 else "sets of programs"
        took += f", of which {sum(result.compile_s):.1f} s compiled {count} {sets}"
    lines = [f"study {settings.study_name}: {ended}; {took}"]
    if result.best is not None:
        lines += _best_lines(result, result.best)
    else:
        lines.append("no trial was completed, so there is no best")
        failures = [each.user_attrs[FAILURE] for each in trials if FAILURE in each.user_attrs]
        lines += [f"{count} failed: {why}" for why, count in Counter(failures).most_common(1)]
    if result.is_interrupted and settings.storage is None:
        lines.append("interrupted; the study was in memory: name a --storage to be able to go on")
    elif result.is_interrupted:
        lines.append(
            f"interrupted; go on with the same command and --study-name {settings.study_name} "
            f"--storage {shown_storage(settings.storage)} "
            f"--n-trials {max(0, settings.n_trials - result.num_ended)}"
        )
    return "\n".join([*lines, *map(str, files)])


def _best_lines(result: TuneResult, best: FrozenTrial) -> list[str]:
    settings, confirmed = result.settings, result.confirmation
    lines = []
    candidates = confirmed.candidates if confirmed is not None else ()
    chosen = next((each for each in candidates if each.number == best.number), None)
    if chosen is not None:
        lines.append(f"best: trial {best.number}, return {_interval(chosen.score)} on fresh seeds")
    else:
        values = _values(settings, best)
        lines.append(f"best: trial {best.number}, {values}; not confirmed on fresh seeds")
    if confirmed is not None:
        if confirmed.default is not None:
            lines.append(f"default: return {_interval(confirmed.default.score)} on the same")
        lines.append(confirmed.verdict)
    if len(settings.objectives) > 1:
        front = best_trials(result.study, settings)
        lines += ["Pareto front:"]
        lines += [f"  trial {each.number}: {_values(settings, each)}" for each in front]
    if result.validation is not None:
        count = len(result.validation.by_seed)
        lines.append(f"validated: return {_interval(result.validation)} over {count} seeds")
    elif settings.validate and not result.is_interrupted:
        lines.append("not validated: it failed on one of the seeds")
    if result.ensemble is not None:
        together = result.ensemble
        lines.append(
            f"ensemble: return {_interval(together.score)} by {together.combined} of trials "
            f"{', '.join(map(str, together.trials))}; trial {together.trials[0]} alone "
            f"{together.alone[0].value:.5g}"
        )
    elif settings.ensemble and not result.is_interrupted:
        lines.append("no ensemble: fewer than two of the best could be trained again")
    width = max(map(len, result.fields), default=0)
    lines += [f"  {name.ljust(width)}  {value}" for name, value in result.fields.items()]
    return [*lines, train_command(best_config(result))]


def _values(settings: TuneSettings, trial: FrozenTrial) -> str:
    named = zip(settings.objectives, trial.values, strict=True)
    return ", ".join(f"{name} {value:.5g}" for name, value in named)


def _interval(score: Score) -> str:
    low, high = score.interval()
    return f"{score.value:.5g} ({low:.5g} to {high:.5g})"
