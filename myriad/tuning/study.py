"""Create or resume the study of a campaign, with its sampler, its pruner and its first trials."""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna import pruners, samplers
from optuna.storages import BaseStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.files import read_text, require_free
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import disconnect, read_storage, storage_errors

# The attribute of a study with the trial that was best on fresh seeds in the last confirmation.
BEST_CONFIRMED = "best_confirmed"
# Attributes of a trial.
FAILURE = "failure"  # Why it failed.
STANDARD_ERROR = "standard_error"  # The standard error of its value.
MEMORY = "memory_bytes"  # The bytes that one of its trainings needs.
SOURCE = "source"  # Why its parameters were tried first: known, or another study's name.


def open_study(settings: TuneSettings, space: SearchSpace) -> optuna.Study:
    """Create the study of a campaign, or resume it. `storage.disconnect` closes its storage.

    Args:
        settings: the campaign, `completed`.
        space: its search space, with a `fingerprint` and the `known` good configurations.

    Raises:
        InvalidArgumentError: the storage can't be used, or the study is of another campaign.
        UnknownNameError: there is no environment, agent, scenario or study to start from.
        NotInstalledError: Optuna is missing.
    """
    identity = _identity(settings, space)
    storage = read_storage(settings.storage).open()
    try:
        with storage_errors():
            return _study(settings, space, storage, identity)
    except BaseException:
        disconnect(storage)
        raise


def retry(study: optuna.Study, number: int, most: int | None = None) -> None:
    """Fail a running trial that can't go on in its process, and queue its parameters again.

    Args:
        study: its study.
        number: its number.
        most: how often its parameters may be tried again; by default always.
    """
    if study.get_trials(deepcopy=False)[number].state != TrialState.RUNNING:
        return  # Another process has failed it, after this one had been silent for long.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls it experimental.
        failed = study.tell(number, state=TrialState.FAIL)
        RetryHeartbeatStaleTrialCallback(max_retry=most)(study, failed)


def retried(trials: Iterable[FrozenTrial]) -> set[int]:
    """Return the numbers of the trials whose parameters are tried again."""
    return {number for trial in trials for number in trial.system_attrs.get("retry_history", [])}


def _study(
    settings: TuneSettings, space: SearchSpace, storage: BaseStorage, identity: Mapping[str, Any]
) -> optuna.Study:
    assert settings.study_name is not None
    warm = _warm_start(settings, space, storage)
    directions: list[Literal["maximize", "minimize"]] = [
        "maximize" if GROWS[each] else "minimize" for each in settings.objectives
    ]
    named: dict[str, Any] = {"study_name": settings.study_name, "storage": storage}
    if settings.study_name not in optuna.get_all_study_names(storage):
        for kind in ("results.json", "best.toml"):
            require_free(settings.output / f"{settings.study_name}_{kind}", force=settings.force)
    try:
        study = optuna.create_study(**named, directions=directions)
        is_new = True
    except optuna.exceptions.DuplicatedStudyError:
        if settings.fail_if_exists:
            raise
        study = optuna.load_study(**named)
        is_new = False
    trials = study.get_trials(deepcopy=False)
    _require_whole(trials, len(directions))
    if not study.user_attrs.get("identity") and not trials:
        # The study is new, or it was created by a process that was killed here.
        study.set_user_attr("identity", identity)
    _require_same(study, identity)
    study.sampler = _sampler(settings, is_first=is_new)
    study.pruner = _pruner(settings)
    known = [("known", dict(params)) for params in space.known] if is_new else []
    for source, params in [*known, *warm]:
        study.enqueue_trial(params, {SOURCE: source}, skip_if_exists=True)
    return study


def _require_whole(trials: Iterable[FrozenTrial], num_values: int) -> None:
    """Raise the error that a trial would cause later if somebody edited its rows."""
    retried(trials)
    for trial in trials:
        trial._validate()
        values = trial.values or [0.0] * num_values
        if not all(
            isinstance(each, float) for each in [*values, *trial.intermediate_values.values()]
        ):
            raise TypeError(f"a value of trial {trial.number} is not a number")
        if len(values) != num_values:
            raise ValueError(f"trial {trial.number} has {len(values)} values, not {num_values}")


def _identity(settings: TuneSettings, space: SearchSpace) -> dict[str, Any]:
    """Return the values that a study's trials must have in common, by the names of settings."""
    from myriad.envs import ENVIRONMENTS

    config = settings.config()
    agent = {name: value for name, value in settings.options.items() if name.startswith("agent.")}
    return {
        "env": settings.env if ":" in settings.env else ENVIRONMENTS.resolve(settings.env),
        "env_options": json.dumps(config.env_options, sort_keys=True),
        "agent": settings.agent,
        "agent_options": json.dumps(agent, sort_keys=True),
        "space": space.fingerprint,
        "objectives": list(settings.objectives),
        "num_steps": settings.num_steps,
        "eval_interval": settings.eval_interval,
        "seed": settings.seed,
        "num_seeds": settings.num_seeds,
    }


def _require_same(study: optuna.Study, identity: Mapping[str, Any]) -> None:
    stored = study.user_attrs.get("identity", {})
    if stored.keys() != identity.keys():
        raise InvalidArgumentError(
            f"study {study.study_name} was not made by this version of Myriad; name another "
            "--study-name."
        )
    for name, now in identity.items():
        if stored[name] != now:
            raise InvalidArgumentError(
                f"study {study.study_name} has {name} {stored[name]}, but this one has {name} "
                f"{now}; name another --study-name."
            )


def _sampler(settings: TuneSettings, *, is_first: bool) -> samplers.BaseSampler:
    import numpy as np

    # The process that made the study repeats its draws. Others must not repeat them.
    entropy = [settings.seed % 2**64, 0] if is_first else None
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    match settings.sampler:
        case "tpe":
            # Otherwise it would draw parameters close to those of running trials again and again.
            return samplers.TPESampler(seed=seed, constant_liar=True)
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "qmc":
            # Processes and sessions take turns in one sequence, which the seed identifies.
            return samplers.QMCSampler(
                seed=settings.seed % 2**32,
                scramble=True,
                independent_sampler=samplers.RandomSampler(seed=seed),
                warn_independent_sampling=False,
            )
        case "nsgaii":
            return samplers.NSGAIISampler(seed=seed)


def _pruner(settings: TuneSettings) -> pruners.BasePruner:
    interval = settings.eval_interval
    match settings.pruner:
        case "median":
            return pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=interval)
        case "hyperband":
            return pruners.HyperbandPruner(min_resource=interval, max_resource=settings.num_steps)
        case "successive_halving":
            return pruners.SuccessiveHalvingPruner(min_resource=interval)
        case "wilcoxon":
            return pruners.WilcoxonPruner(n_startup_steps=2)
        case _:
            return pruners.NopPruner()


def _warm_start(
    settings: TuneSettings, space: SearchSpace, storage: BaseStorage
) -> list[tuple[str, dict[str, Any]]]:
    """Return the best parameters of other studies, each with the study's name."""
    found = []
    for name in settings.warm_start:
        for params in _best_of(name, settings, storage):
            # From another space, take only values that this one can draw.
            ours = space.params(space.fields(params))
            if not ours:
                raise InvalidArgumentError(
                    "warm_start",
                    f"must name a study whose best can be drawn from {space.file}, but "
                    f"nothing of {shown(name)} can.",
                )
            found.append((name, ours))
    return found


def _best_of(name: str, settings: TuneSettings, storage: BaseStorage) -> list[dict[str, Any]]:
    """Return the best parameters of another study, which may be in a file of results."""
    if name.endswith(".json"):
        return _best_of_file(Path(name), settings.agent)
    if name == settings.study_name:
        raise InvalidArgumentError(
            "warm_start", f"must name another study than {shown(name)} itself, which is resumed."
        )
    known = {study.study_name for study in storage.get_all_studies()} - {settings.study_name}
    if name not in known:
        raise UnknownNameError("study", name, known)
    other = optuna.load_study(study_name=name, storage=storage)
    _require_agent(name, other.user_attrs.get("identity", {}).get("agent"), settings.agent)
    # If no campaign got to a confirmation, take the best by its value.
    number = other.user_attrs.get(BEST_CONFIRMED)
    confirmed = [trial for trial in other.get_trials(deepcopy=False) if trial.number == number]
    best = [trial.params for trial in confirmed or other.best_trials]
    if not best:
        raise InvalidArgumentError(f"study {name} has no finished trial to start from.")
    return best


def _best_of_file(file: Path, agent: str) -> list[dict[str, Any]]:
    text = read_text(file)
    try:
        results = json.loads(text)
        whose = results["agent"]
        best = results["best"]["params"]
        is_plain = all(isinstance(each, bool | int | float | str) for each in best.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whose, best, is_plain = None, {}, False
    if not is_plain:
        raise InvalidArgumentError(f"{file} has no best trial to start from.")
    _require_agent(str(file), whose, agent)
    return [best]


def _require_agent(name: str, whose: str | None, agent: str) -> None:
    if whose != agent:
        raise InvalidArgumentError(
            "warm_start",
            f"must name a study of {agent}, but {name} is of {whose or 'another agent'}.",
        )
