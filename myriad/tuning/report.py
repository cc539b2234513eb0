"""What a campaign leaves: its files, and its summary for the terminal.

The files are all trials as JSON, the best as TOML, one page of what the terminal prints and of
Optuna's plots, and three of these plots on pages of their own. The pages open offline with the
`plotly.min.js` that lies next to them. Every file name begins with the study's name.
"""

import dataclasses
import html
import json
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
from optuna import visualization
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from myriad.files import replacing, write_errors_explained
from myriad.training.config import TrainingConfig
from myriad.tuning.campaign import TuneResult
from myriad.tuning.objective import Score
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.storage import shown_storage
from myriad.tuning.study import FAILURE, best_trials, retried

__all__ = ["write_report"]

# The completed trials that a plot needs. Fewer points than five show no trend. Optuna advises at
# least five trials among the best for PED-ANOVA, here the best quarter.
_LEAST_OF_TREND, _LEAST_OF_IMPORTANCE, _BEST = 5, 20, 0.25
# The plots that also have a page of their own.
_PAGES = ("history", "importances", "parallel")
# Settings that say how a campaign was run. They don't describe the campaign itself.
_UNSHOWN = {"storage", "output", "quiet", "fail_if_exists", "force", "trust"}


def write_report(result: TuneResult) -> list[Path]:
    """Write all files of a campaign to its output folder, each whole or not at all.

    Returns:
        the files. A plot for which too few trials were completed has no page, and the report says
        how many it needs.

    Raises:
        InvalidArgumentError: a file can't be written.
    """
    folder = result.settings.output
    with write_errors_explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    figures, missing = _figures(result.study, result.settings)
    texts = {"results.json": to_json(result)}
    if result.best is not None:
        texts["best.toml"] = best_config(result).to_toml()
    texts["report.html"] = _page(result, figures, missing)
    pages = {f"{kind}.html": figures[kind] for kind in _PAGES if kind in figures}
    written = []
    for name, content in [*texts.items(), *pages.items()]:
        path = folder / f"{result.settings.study_name}_{name}"
        with replacing(path) as new:
            if isinstance(content, str):
                new.write_text(content, encoding="utf-8")
            else:
                # The history, which needs the fewest trials, also writes the library.
                content.write_html(new, include_plotlyjs="directory")
        written.append(path)
    return written


def _page(result: TuneResult, figures: dict[str, Any], missing: Sequence[str]) -> str:
    """Return the report: the verdict, what the terminal prints, and the plots."""
    settings, confirmed = result.settings, result.confirmation
    verdict = "not confirmed on fresh seeds" if confirmed is None else confirmed.verdict
    title = f"{settings.agent} on {settings.env}: {verdict}"
    drawn = [
        figure.to_html(full_html=False, include_plotlyjs=False, div_id=kind)
        for kind, figure in figures.items()
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
{'<script src="plotly.min.js"></script>' if drawn else ""}
</head>
<body style="font-family: sans-serif">
<main>
<h1>{html.escape(title)}</h1>
<pre style="white-space: pre-wrap">{html.escape(summary(result))}</pre>
{"".join(drawn)}
{"".join(f"<p>{html.escape(each)}</p>" for each in missing)}
</main>
</body>
</html>
"""


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
            given = "none" if value is None else value
            shown = str(given) if isinstance(given, str | float) else json.dumps(given)
            words += [f"--{name.replace('_', '-')}", shown]
    return shlex.join(words)


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
        "is_interrupted": result.ended_by != 0,
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


def _figures(study: optuna.Study, settings: TuneSettings) -> tuple[dict[str, Any], list[str]]:
    """Return Optuna's figures by kind, and a sentence for each that these trials don't allow."""
    completed = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    objectives: list[str] = [*settings.objectives]
    name, several = objectives[0], len(objectives) > 1
    target = (lambda trial: trial.values[0]) if several else None
    same: dict[str, Any] = {"target": target, "target_name": name}
    # With a target PED-ANOVA asks what makes it small.
    sign = -1 if GROWS[name] else 1
    small = (lambda trial: sign * trial.values[0]) if several else None
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST)
    # The completed trials that each needs, what draws it, and its arguments.
    figures: dict[str, tuple[int, Callable[..., Any], dict[str, Any]]] = {
        "history": (2, visualization.plot_optimization_history, same),
        "slice": (_LEAST_OF_TREND, visualization.plot_slice, same),
        "parallel": (_LEAST_OF_TREND, visualization.plot_parallel_coordinate, same),
        "importances": (
            _LEAST_OF_IMPORTANCE,
            visualization.plot_param_importances,
            {"evaluator": evaluator, "target": small, "target_name": name},
        ),
    }
    if several:
        figures["pareto"] = (2, visualization.plot_pareto_front, {"target_names": objectives})
    drawn, missing = {}, []
    for kind, (least, draw, arguments) in figures.items():
        if completed < least:
            missing.append(f"{kind}: needs {least} completed trials, and {completed} completed.")
            continue
        with warnings.catch_warnings():
            # Optuna warns of experimental plots and of plots that it leaves empty.
            warnings.simplefilter("ignore")
            try:
                drawn[kind] = draw(study, **arguments)
            except (ValueError, RuntimeError, ZeroDivisionError):
                missing.append(f"{kind}: these trials differ too little to draw it.")
    return drawn, missing


def summary(result: TuneResult) -> str:
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
        took += f", of which {sum(result.compile_s):.1f} s compiled programs"
    lines = [f"study {settings.study_name}: {ended}; {took}"]
    if result.best is not None:
        lines += _best_lines(result, result.best)
    else:
        lines.append("no trial was completed, so there is no best")
        failures = [each.user_attrs[FAILURE] for each in trials if FAILURE in each.user_attrs]
        lines += [f"{count} failed: {why}" for why, count in Counter(failures).most_common(1)]
    if result.ended_by and settings.storage is None:
        lines.append("interrupted; the study was in memory: name a --storage to be able to go on")
    elif result.ended_by:
        lines.append(
            f"interrupted; go on with the same command and --study-name {settings.study_name} "
            f"--storage {shown_storage(settings.storage)} "
            f"--n-trials {max(0, settings.n_trials - result.num_ended)}"
        )
    return "\n".join(lines)


def _best_lines(result: TuneResult, best: FrozenTrial) -> list[str]:
    settings, confirmed = result.settings, result.confirmation
    lines = []
    if confirmed is not None and confirmed.candidates:
        score = _interval(confirmed.candidates[0].score)
        lines.append(f"best: trial {best.number}, return {score} on fresh seeds")
    else:
        values = _values(settings, best)
        lines.append(f"best: trial {best.number}, {values}; not confirmed on fresh seeds")
    if confirmed is not None:
        if confirmed.default is not None:
            lines.append(f"default: return {_interval(confirmed.default)} on the same")
        lines.append(confirmed.verdict)
    if len(settings.objectives) > 1:
        front = best_trials(result.study, settings)
        lines += ["Pareto front:"]
        lines += [f"  trial {each.number}: {_values(settings, each)}" for each in front]
    if result.validation is not None:
        count = len(result.validation.by_seed)
        lines.append(f"validated: return {_interval(result.validation)} over {count} seeds")
    elif settings.validate and not result.ended_by:
        lines.append("not validated: it failed on one of the seeds")
    if result.ensemble is not None:
        together = result.ensemble
        lines.append(
            f"ensemble: return {_interval(together.score)} by {together.combined} of trials "
            f"{', '.join(map(str, together.trials))}; trial {together.trials[0]} alone "
            f"{together.alone[0].value:.5g}"
        )
    elif settings.ensemble and not result.ended_by:
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
