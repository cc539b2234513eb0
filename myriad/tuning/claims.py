"""Trials that several processes share. One process claims each, and loses it if it ends.

A trial is claimed under a lock, so a trial without an owner was left behind by a killed process.
"""

import contextlib
import os
import socket
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from myriad.tuning.storage import HEARTBEAT_S, Place

# Attributes of a trial.
WORKER = "worker"  # The process that runs it.
FAILURE = "failure"  # Why it failed.
RETRY_OF = "retry_of"  # The number of the trial whose parameters it has.
STANDARD_ERROR = "standard_error"  # The standard error of its value.
MEMORY = "memory_bytes"  # The bytes that one of its trainings needs.
SOURCE = "source"  # Why its parameters were tried first: known, or another study's name.
# The FAILURE of a trial whose process was killed.
KILLED = "its process ended before the trial did"
# A trial whose process ends this often is at fault itself.
_MOST_RETRIES = 3


class TuningStudy(optuna.Study):
    """A study whose trials are claimed. Leave it as a context manager.

    Args:
        place: where the study is kept.
        **arguments: the arguments of `optuna.Study`.
    """

    def __init__(self, place: Place, **arguments: Any):
        super().__init__(**arguments)
        self.place = place
        self._ended = threading.Event()
        if self._has_heartbeat():
            beat = threading.Thread(
                target=_beat, args=(weakref.ref(self), self._ended), daemon=True
            )
            beat.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the heartbeat, and disconnect."""
        self._ended.set()
        disconnect(self._storage)

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from claiming trials of this study."""
        return self.place.exclusive(_backend(self._storage), self.study_name)

    def ask(self, fixed_distributions: Mapping[str, Any] | None = None) -> optuna.Trial:
        """Claim a waiting or a new trial for this process."""
        with self.exclusive(), warnings.catch_warnings():
            # Optuna warns, since it knows only the heartbeat of its own loop.
            warnings.filterwarnings("ignore", message="Heartbeat of storage")
            trial = super().ask()
            trial.set_user_attr(WORKER, signature(os.getpid()))
            if self._has_heartbeat():
                # Beat at once, since other hosts never miss a trial that has no first heartbeat.
                _backend(self._storage).record_heartbeat(trial._trial_id)
        for name, distribution in (fixed_distributions or {}).items():
            trial._suggest(name, distribution)
        return trial

    def fail_stale(self) -> list[FrozenTrial]:
        """Fail the trials whose process has ended, and queue their parameters again.

        Returns:
            the trials that were failed.
        """
        with self.exclusive():
            running = self.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            silent = self._silent()
            stale = [trial for trial in running if _is_stale(trial, silent)]
            for trial in stale:
                self._give_back(trial, KILLED)
        return stale

    def give_back(self, trial: optuna.Trial, reason: str) -> None:
        """Fail a trial of this process that can't go on, and queue its parameters again."""
        with self.exclusive():
            self._give_back(self._storage.get_trial(trial._trial_id), reason)

    def _give_back(self, trial: FrozenTrial, reason: str) -> None:
        if trial.state.is_finished():
            return  # Another process gave it back, after this one had been silent for long.
        # Queue the parameters first, so that nothing is lost if this process is killed in between.
        self._retry(trial, was_killed=reason == KILLED)
        self._storage.set_trial_user_attr(trial._trial_id, FAILURE, reason)
        self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def trials_of(self, owner: Mapping[str, Any]) -> tuple[list[FrozenTrial], list[FrozenTrial]]:
        """Return the trials that a process claimed, and those of them that are run again.

        Args:
            owner: the process's `signature`.
        """
        trials = self.get_trials(deepcopy=False)
        again = retried(trials)
        claimed = [trial for trial in trials if trial.user_attrs.get(WORKER) == owner]
        return claimed, [trial for trial in claimed if trial.number in again]

    def beat(self) -> None:
        """Record a sign of life for every trial of this process."""
        backend = _backend(self._storage)
        here = signature(os.getpid())
        for trial in self._storage.get_all_trials(
            self._study_id, deepcopy=False, states=(TrialState.RUNNING,)
        ):
            if trial.user_attrs.get(WORKER) == here:
                backend.record_heartbeat(trial._trial_id)

    def _has_heartbeat(self) -> bool:
        return isinstance(_backend(self._storage), RDBStorage)

    def _silent(self) -> set[int]:
        """Return the trials without a recent heartbeat. A journal has no heartbeats."""
        if not self._has_heartbeat():
            return set()
        return set(_backend(self._storage)._get_stale_trial_ids(self._study_id))

    def _retry(self, trial: FrozenTrial, *, was_killed: bool) -> None:
        # Parameters that were queued and not drawn yet are among the fixed ones.
        params = trial.system_attrs.get("fixed_params", {}) | trial.params
        trials = self.get_trials(deepcopy=False)
        is_queued = trial.number in retried(trials)
        kills = 0
        each = trial
        while (before := each.user_attrs.get(RETRY_OF)) is not None:
            each = trials[before]
            kills += each.user_attrs.get(FAILURE) == KILLED
        is_hopeless = was_killed and kills >= _MOST_RETRIES
        # A claimed trial counts towards `n_trials`, so queue it again even if it has no parameters
        # yet. They are drawn then.
        if not is_queued and not is_hopeless:
            kept = {k: v for k, v in trial.user_attrs.items() if k == SOURCE}
            self.enqueue_trial(params, user_attrs=kept | {RETRY_OF: trial.number})


def retried(trials: Iterable[FrozenTrial]) -> set[int]:
    """Return the numbers of the trials whose parameters are tried again."""
    attributes = (trial.user_attrs for trial in trials)
    return {each[RETRY_OF] for each in attributes if RETRY_OF in each}


def disconnect(storage: BaseStorage) -> None:
    """Close the connections of a storage, if it has any."""
    backend = _backend(storage)
    if isinstance(backend, RDBStorage):
        backend.remove_session()
        backend.engine.dispose()


def _backend(storage: BaseStorage) -> Any:
    """Return the storage behind Optuna's cache."""
    return getattr(storage, "_backend", storage) if not isinstance(storage, RDBStorage) else storage


def _is_stale(trial: FrozenTrial, silent: set[int]) -> bool:
    owner = trial.user_attrs.get(WORKER)
    if owner is None:
        return True
    if owner["host"] != _host():
        # Process numbers of another machine mean nothing here, so only its heartbeat counts.
        return trial._trial_id in silent
    # Systems reuse process numbers, but not with the same start time.
    return _started(owner["process"]) != owner["started"]


def signature(process: int) -> dict[str, Any]:
    """Return the signature of a living process of this machine, for its trials."""
    return {"host": _host(), "process": process, "started": _started(process)}


def _host() -> str:
    """Name the machine, or the container in it, to which process numbers belong."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    return "/".join(filter(None, [socket.gethostname(), namespace]))


def _started(process: int) -> str | None:
    """Return when a process started, as far as the system tells, and None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _alive(process)
    # A killed process is a zombie until its parent waits for it. It won't finish a trial.
    return None if fields[0] in "ZX" else fields[19]


def _alive(process: int) -> str | None:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "running"
    return "running"


def _beat(study: "weakref.ref[TuningStudy]", ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        alive = study()
        if alive is None:
            return
        # If the database is unreachable for a while, the campaign reports it.
        with contextlib.suppress(Exception):
            alive.beat()
        del alive
