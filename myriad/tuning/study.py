"""A study: created or resumed, and the loop that asks Optuna for trials, trains and tells them.

Each process that runs trials has a `TrialLoop`. A trial that has a NaN or crashes is FAILED, with
the reason in its user attribute `failure`. The other trials continue.
"""

import contextlib
import dataclasses
import json
import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import optuna
from optuna import pruners, samplers
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import read_text, require_free, seconds_shown, user_path
from myriad.tuning.objective import Programs, Shape, Training, take_first
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import HEARTBEAT_S, disconnect, open_storage, storage_errors

# The attribute of a study with the trial that was best on fresh seeds in the last confirmation.
BEST_CONFIRMED = "best_confirmed"
# Attributes of a trial.
FAILURE = "failure"  # Why it failed.
SCORE = "score"  # The last evaluation, as the fields of a `Score`.
MEMORY = "memory_bytes"  # The bytes that its trainings need.
WORKER = "worker"  # The process of a campaign that runs it.

# Trials that are asked for ahead, to find some that share a program. More of them would make the
# sampler draw without the results of the trials before.
_AHEAD = 4
_LOG = logging.getLogger(__name__)

# As Optuna's: called with the study and each trial that has ended.
Callback = Callable[[optuna.Study, FrozenTrial], None]


@dataclasses.dataclass
class TrialLoop:
    """The ask-and-tell loop of one process: trials of one shape train together.

    Attributes:
        callbacks: called after each trial that has ended.
        permits: a semaphore that processes share, with a permit for each trial.
        ends_at: the time after which no further trial starts.
        worker: the name of this process, if the campaign has several.
        asked: the trials that were asked for and not told.
        waiting: those of them that have not begun to train.
    """

    study: optuna.Study
    programs: Programs
    callbacks: Sequence[Callback] = ()
    permits: Any = None
    ends_at: float = math.inf
    worker: str = ""
    asked: list[Training] = dataclasses.field(default_factory=list)
    waiting: list[Training] = dataclasses.field(default_factory=list)

    def run(self, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        """Run trials until there are `n_trials` more. After an interrupt, queue again what runs."""
        self.permits = self.permits or threading.Semaphore(self.programs.settings.n_trials)
        ended = threading.Event()
        beating = threading.Thread(target=self._beat_until, args=(ended,), daemon=True)
        beating.start()
        try:
            for happened, training in self.programs.train(self._take, is_interrupted):
                with self._unless_lost(training):
                    self._hear(happened, training)
        finally:
            ended.set()
            beating.join()
            for training in self.asked:
                retry(self.study, training.origin.number)

    def _beat_until(self, ended: threading.Event) -> None:
        """Record heartbeats, which Optuna does only in its own loop."""
        while not ended.wait(HEARTBEAT_S):
            # If the database is unreachable for a while, the loop reports it.
            with contextlib.suppress(Exception):
                self._beat(*self.asked)
        self.study._storage.remove_session()

    def _beat(self, *trainings: Training) -> None:
        storage: Any = self.study._storage
        if hasattr(storage, "record_heartbeat"):  # Only databases have it.
            for training in trainings:
                storage.record_heartbeat(training.origin._trial_id)

    def _take(self, shape: Shape | None) -> Training | None:
        """Return a trial of a shape, or the first that waits, and ask for further ones."""
        while time.time() < self.ends_at:
            if (found := take_first(self.waiting, self.programs.space, shape)) is not None:
                return found
            if len(self.waiting) >= _AHEAD or not self.permits.acquire(False):  # noqa: FBT003
                return None
            self._ask()
        return None

    def _ask(self) -> None:
        """Ask for a trial, first for those of processes that have fallen silent."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna knows only the heartbeats of its own loop.
            optuna.storages.fail_stale_trials(self.study)
            trial = self.study.ask()
        training = Training({}, tuple(self.programs.settings.seeds()), origin=trial)
        self.asked.append(training)
        # Two processes may get one trial of an SQLite file, which locks no rows.
        with self._unless_lost(training):
            if self.worker:
                trial.set_user_attr(WORKER, self.worker)
            self._beat(training)
            try:
                training.fields = self.programs.space.suggest(trial)
            except (ValueError, TypeError) as error:
                # Queued parameters may not belong to this space.
                training.fail(f"its parameters are not of this space: {error}")
                self._hear("failed", training)
                return
            self.waiting.append(training)

    def _hear(self, happened: str, training: Training) -> None:
        trial, limit_gib = training.origin, self.programs.settings.max_memory_gib
        if happened == "compiling":
            _LOG.info("compiling the programs of trial %d ...", trial.number)
        elif happened == "ready":
            trial.set_user_attr(MEMORY, training.num_bytes)
            if limit_gib is not None:
                trial.set_constraint(MEMORY, training.num_bytes - limit_gib * 2**30)
                if training.num_bytes > limit_gib * 2**30:
                    self._tell(training, TrialState.PRUNED)
        elif happened == "evaluated":
            self._report(training)
        elif happened == "failed":
            trial.set_user_attr(FAILURE, training.failure)
            self._tell(training, TrialState.FAIL)

    def _report(self, training: Training) -> None:
        """Report an evaluation, and tell the trial if it is the last one or the pruner says so."""
        trial, score = training.origin, training.score
        objectives = self.programs.settings.objectives
        is_pruned = False
        if objectives == ("return",):
            for step in training.steps:
                trial.report(score.value, step)
            is_pruned = not training.is_over and trial.should_prune()
        if not training.is_over and not is_pruned:
            return
        trial.set_user_attr(SCORE, dataclasses.asdict(score))
        if is_pruned:
            self._tell(training, TrialState.PRUNED)
            return
        # The time of all seeds together, which train one after another on a CPU.
        rate = training.steps[-1] * len(training.seeds) / max(training.train_s, 1e-9)
        known = {"return": score.value, "train_s": training.train_s, "steps_per_s": rate}
        self._tell(training, TrialState.COMPLETE, [known[name] for name in objectives])

    def _tell(self, training: Training, state: TrialState, values: Any = None) -> None:
        training.is_over = True
        told = self.study.tell(training.origin, values, state, skip_if_finished=True)
        self.asked.remove(training)
        for callback in self.callbacks:
            callback(self.study, told)

    @contextlib.contextmanager
    def _unless_lost(self, training: Training) -> Iterator[None]:
        """Leave a trial that has ended to the other process that ended it, and run another one."""
        try:
            yield
        except UpdateFinishedTrialError:
            _LOG.info("trial %d was taken by another process", training.origin.number)
            training.is_over = True
            self.asked.remove(training)
            self.permits.release()


def retry(study: optuna.Study, number: int, most: int | None = None) -> None:
    """Fail a running trial that can't go on in its process, and queue its parameters again.

    They are tried again at most `most` times, by default always.
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


def best_trials(study: optuna.Study, settings: TuneSettings) -> list[FrozenTrial]:
    """Return the completed trials, of several objectives those of the Pareto front.

    The best by the first objective come first.
    """
    several = len(settings.objectives) > 1
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    sign = -1 if GROWS[settings.objectives[0]] else 1
    return sorted(study.best_trials if several else done, key=lambda trial: sign * trial.values[0])


@seconds_shown("opening the study")  # Another process may hold the lock of a file.
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
    storage = open_storage(settings.storage)
    try:
        with storage_errors():
            name = str(settings.study_name)
            known = [
                each for one in settings.warm_start for each in _warm_start(one, space, storage)
            ]
            if name not in optuna.get_all_study_names(storage):
                for kind in ("results.json", "best.toml"):
                    require_free(settings.output / f"{name}_{kind}", force=settings.force)
            is_new = True
            try:
                study = optuna.create_study(
                    storage=storage,
                    study_name=name,
                    directions=[
                        StudyDirection.MAXIMIZE if GROWS[each] else StudyDirection.MINIMIZE
                        for each in settings.objectives
                    ],
                )
            except DuplicatedStudyError:
                if settings.fail_if_exists:
                    raise
                study = optuna.load_study(study_name=name, storage=storage)
                is_new = False
            _require_same(study, settings, space)
            # Processes that share a study must not make the same draws.
            study.sampler = _sampler(settings, settings.seed % 2**32 if is_new else None)
            study.pruner = _pruner(settings)
            if is_new:
                known = [*map(dict, space.known), *known]
            for params in known:
                study.enqueue_trial(params, skip_if_exists=True)
            return study
    except BaseException:
        disconnect(storage)
        raise


def _require_same(study: optuna.Study, settings: TuneSettings, space: SearchSpace) -> None:
    """Require that a campaign has in common what a study's trials must have, or note it."""
    from myriad.envs import ENVIRONMENTS

    config = settings.config()
    agent = {name: value for name, value in settings.options.items() if name.startswith("agent.")}
    identity = {
        "env": settings.env if ":" in settings.env else ENVIRONMENTS.resolve(settings.env),
        "env_options": json.dumps(config.env_options, sort_keys=True),
        "agent": settings.agent,
        "agent_options": json.dumps(agent, sort_keys=True),
        "space": space.fingerprint,
        "objectives": list(settings.objectives),
        "num_steps": settings.num_steps,
        "eval_interval": settings.steps_per_eval,
        "seed": settings.seed,
        "num_seeds": settings.num_seeds,
    }
    if not study.user_attrs.get("identity") and not study.get_trials(deepcopy=False):
        # The study is new, or it was created by a process that was killed here.
        study.set_user_attr("identity", identity)
    stored = study.user_attrs.get("identity", {})
    for name, now in identity.items():
        if stored.get(name) != now:
            held = f"study {study.study_name} has {name} {stored.get(name)}"
            raise InvalidArgumentError(f"{held}, but this one has {name} {now}; name another.")


def _sampler(settings: TuneSettings, seed: int | None) -> samplers.BaseSampler:
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
    interval = settings.steps_per_eval
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
    source: str, space: SearchSpace, storage: optuna.storages.BaseStorage
) -> list[dict[str, Any]]:
    """Return what the space holds of the best parameters of another study or file of results."""
    if source.endswith(".json"):
        text = read_text(user_path(source))
        try:
            best = [dict(json.loads(text)["best"]["params"])]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidArgumentError(f"{source} has no best trial to start from.") from None
    else:
        names = optuna.get_all_study_names(storage)
        if source not in names:
            raise UnknownNameError("study", source, names)
        other = optuna.load_study(study_name=source, storage=storage)
        # If no campaign got to a confirmation, take the best by its value.
        confirmed = other.user_attrs.get(BEST_CONFIRMED)
        chosen = other.best_trials if confirmed is None else [other.trials[confirmed]]
        best = [trial.params for trial in chosen]
    # From another space, take only values that this one can draw.
    fitting = [params for each in best if (params := space.params(space.fields(each)))]
    if not fitting:
        rule = f"must name a study whose best can be drawn from {space.file}"
        raise InvalidArgumentError("warm_start", rule, source)
    return fitting
