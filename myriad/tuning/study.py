"""Create or resume the study of a campaign, with its sampler, its pruner and its first trials.

Optuna stores the study. `claims.py` decides which process runs which trial.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import BaseStorage

from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.files import read_text, require_free
from myriad.tuning.claims import FAILURE, RETRY_OF, SOURCE, WORKER, TuningStudy, disconnect
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import Place, explained, read_storage

# The attribute of a study with the trial that was best on fresh seeds in the last confirmation.
BEST_CONFIRMED = "best_confirmed"


def open_study(settings: TuneSettings, space: SearchSpace) -> TuningStudy:
    """Create the study of a campaign, or resume it.

    Args:
        settings: the campaign, `completed`.
        space: its search space, with a `fingerprint` and the `known` good configurations.

    Raises:
        InvalidArgumentError: the storage can't be used, or the study is of another campaign.
        UnknownNameError: there is no environment, agent, scenario or study to start from.
        NotInstalledError: Optuna is missing.
    """
    assert settings.study_name is not None
    identity = _identity(settings, space)
    place = read_storage(settings.storage)
    storage = place.open()
    with explained(place), contextlib.ExitStack() as opened:
        opened.callback(disconnect, storage)
        with place.exclusive(storage, settings.study_name):
            queue = _queue(settings, space, storage)
            _create_or_check(settings, identity, storage, place)
            session = _next_session(storage, settings.study_name)
            study = TuningStudy(
                place,
                study_name=settings.study_name,
                storage=storage,
                sampler=_sampler(settings, session),
                pruner=_pruner(settings),
            )
            opened.callback(study.close)
            _require_whole(study)
            queued = list(study.user_attrs.get("queued", []))
            for source, params in queue:
                if source not in queued:
                    study.enqueue_trial(params, {SOURCE: source}, skip_if_exists=True)
            sources = dict.fromkeys(source for source, _ in queue)
            study.set_user_attr("queued", list(dict.fromkeys([*queued, *sources])))
        study.fail_stale()
        # The caller closes it.
        opened.pop_all()
    return study


def _identity(settings: TuneSettings, space: SearchSpace) -> dict[str, Any]:
    """Return the values that a study's trials must have in common, by the names of settings."""
    config = settings.config().resolve().config
    return {
        "env": settings.env if ":" in settings.env else _own_name(settings.env),
        "env_options": json.dumps(config.env_options, sort_keys=True),
        "agent": settings.agent,
        "agent_options": json.dumps(settings.agent_options(), sort_keys=True),
        "space": space.fingerprint,
        "objectives": list(settings.objectives),
        "num_steps": settings.num_steps,
        "eval_interval": settings.eval_interval,
        "seed": settings.seed,
        "num_seeds": settings.num_seeds,
    }


def _own_name(env: str) -> str:
    from myriad.envs import ENVIRONMENTS

    return ENVIRONMENTS.resolve(env)


def _create_or_check(
    settings: TuneSettings, identity: Mapping[str, Any], storage: BaseStorage, place: Place
) -> None:
    """Create the study, unless there is one with the same settings."""
    name = settings.study_name
    directions: list[Literal["maximize", "minimize"]] = [
        "maximize" if GROWS[each] else "minimize" for each in settings.objectives
    ]
    known = {study.study_name for study in storage.get_all_studies()}
    if name not in known:
        for kind in ("results.json", "best.toml"):
            require_free(settings.output / f"{name}_{kind}", force=settings.force)
        made = optuna.create_study(study_name=name, storage=storage, directions=directions)
    else:
        if settings.fail_if_exists:
            raise InvalidArgumentError(
                f"study {name} exists in {place}: leave out --fail-if-exists to resume it, or name "
                "another --study-name."
            )
        made = optuna.load_study(study_name=name, storage=storage)
    if not made.user_attrs.get("identity") and not made.get_trials(deepcopy=False):
        # The study is new, or it was created by a process that was killed here.
        made.set_user_attr("identity", identity)
    _require_same(made, identity, directions)


def _require_same(
    study: optuna.Study, identity: Mapping[str, Any], directions: Sequence[str]
) -> None:
    stored = study.user_attrs.get("identity")
    if stored is None:
        raise InvalidArgumentError(
            f"study {study.study_name} was not made by Myriad; name another --study-name."
        )
    for name, now in identity.items():
        before = stored.get(name)
        if name not in stored:
            raise InvalidArgumentError(
                f"study {study.study_name} was made by an older version of Myriad; name another "
                "--study-name."
            )
        if before != now:
            differs = f"{_written(name, before)}, but this one has {_written(name, now)}"
            if name == "space":
                differs = "another search space"
            raise InvalidArgumentError(
                f"study {study.study_name} has {differs}; name another --study-name."
            )
    if [each.name.lower() for each in study.directions] != list(directions):
        raise InvalidArgumentError(
            f"study {study.study_name} has other directions; name another --study-name."
        )


def _require_whole(study: optuna.Study) -> None:
    """Raise ValueError for a trial that neither Optuna nor Myriad can have stored."""
    for trial in study.get_trials(deepcopy=False):
        trial._validate()  # noqa: SLF001 (Optuna asks itself the same of a trial that it makes)
        attributes = trial.user_attrs
        owner = attributes.get(WORKER, dict.fromkeys(("host", "process", "started")))
        retry_of = attributes.get(RETRY_OF, -1)
        is_whole = (
            all(isinstance(name, str) for name in (*attributes, *trial.system_attrs))
            and isinstance(owner, dict)
            and {"host", "process", "started"} <= owner.keys()
            and isinstance(attributes.get(FAILURE, ""), str)
            and type(retry_of) is int
            and -1 <= retry_of < trial.number
            and isinstance(trial.system_attrs.get("fixed_params", {}), dict)
            and len(trial.values or study.directions) == len(study.directions)
            and all(isinstance(each, float) for each in trial.intermediate_values.values())
        )
        if not is_whole:
            raise ValueError(f"trial {trial.number} of study {study.study_name} is damaged")


def _written(name: str, value: Any) -> str:
    shown = ", ".join(value) if isinstance(value, list) else value
    return f"{name} {shown}"


def _next_session(storage: BaseStorage, study_name: str) -> int:
    """Count a process that opens the study, since each draws from its own random sequence."""
    study_id = storage.get_study_id_from_name(study_name)
    session = storage.get_study_user_attrs(study_id).get("sessions", 0)
    storage.set_study_user_attr(study_id, "sessions", session + 1)
    return session


def _sampler(settings: TuneSettings, session: int) -> optuna.samplers.BaseSampler:
    import numpy as np

    words = np.random.SeedSequence([settings.seed % 2**64, session]).generate_state(1)
    seed = int(words[0])
    samplers = optuna.samplers
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


def _pruner(settings: TuneSettings) -> optuna.pruners.BasePruner:
    pruners = optuna.pruners
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


def _queue(
    settings: TuneSettings, space: SearchSpace, storage: BaseStorage
) -> list[tuple[str, dict[str, Any]]]:
    """Return the parameters to try first, each with the reason."""
    queue = [("known", dict(params)) for params in space.known]
    for name in settings.warm_start:
        for params in _best_of(name, settings, storage):
            # From another space, take only values that this one can draw.
            ours = space.params(space.fields(params))
            if not ours:
                raise InvalidArgumentError(
                    f"warm_start must name a study whose best can be drawn from {space.file}, but "
                    f"nothing of {shown(name)} can."
                )
            queue.append((name, ours))
    return queue


def _best_of(name: str, settings: TuneSettings, storage: BaseStorage) -> list[dict[str, Any]]:
    """Return the best parameters of another study, which may be in a file of results."""
    if name.endswith(".json"):
        return _best_of_file(Path(name), settings.agent)
    if name == settings.study_name:
        raise InvalidArgumentError(
            f"warm_start must name another study than {shown(name)} itself, which is resumed."
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
    try:
        results = json.loads(read_text(file))
        whose = results["agent"]
        best = results["best"]["params"]
        is_plain = all(isinstance(each, bool | int | float | str) for each in best.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"{file} has no best trial to start from.") from None
    if not is_plain:
        raise InvalidArgumentError(f"{file} has a best trial whose params are no plain values.")
    _require_agent(str(file), whose, agent)
    return [best]


def _require_agent(name: str, whose: str | None, agent: str) -> None:
    if whose != agent:
        raise InvalidArgumentError(
            f"warm_start must name a study of {agent}, but {name} is of {whose or 'another agent'}."
        )
