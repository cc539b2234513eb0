"""A storage is checked before it is made, and its password is shown nowhere."""

import contextlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from myriad.errors import InvalidArgumentError
from myriad.tuning.claims import FAILURE, RETRY_OF, WORKER
from myriad.tuning.storage import read_storage
from myriad.tuning.study import open_study
from tests.tuning.bowl import bowl, settings

BOWL = Path(__file__).with_name("bowl.py")


@pytest.mark.parametrize(
    "storage",
    [
        "sqlit:///studies.db",
        "sqlite://studies.db",
        "sqlite:///",
        "mysql://me:secret@host/studies",
        "postgres://me:secret@host/studies",
        "postgresql:/me:secret@host/studies",
        "postgresql//me:secret@host/studies",
        "postgresql://me:secret@host",
        "postgresql://me:secret@host:port/studies",
        "postgresql://me:se@cret@host/studies",
        "me:secret@host/studies.journal",
        "studies",
        "",
    ],
)
def test_a_misspelt_storage_is_refused_in_a_sentence_without_its_password(storage):
    with pytest.raises(InvalidArgumentError, match="storage must ") as refused:
        read_storage(storage)
    said = "".join(traceback.format_exception(refused.value))
    assert "\n" not in str(refused.value)
    assert "cret@" not in said


@pytest.mark.parametrize("name", ["folder", "text.db", "text.journal"])
def test_a_file_that_is_no_storage_is_refused_in_a_sentence(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "text.journal").write_text("no journal")
    path = tmp_path / name
    storage = str(path) if name.endswith(".journal") else f"sqlite:///{path}"
    with pytest.raises(InvalidArgumentError, match="can't be used: ") as refused:
        read_storage(storage).open()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "damage", [b"\0\0{}", b"[]", b"{}", b'{"op_code": 99, "worker_id": "a"}', b"[" * 100_000]
)
def test_a_damaged_line_of_a_journal_is_named(tmp_path, damage):
    file = tmp_path / "studies.journal"
    storage = read_storage(str(file)).open()
    for name in ("a", "b", "c"):
        optuna.create_study(study_name=name, storage=storage)
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines[:2], damage, *lines[3:], b""]))
    with pytest.raises(InvalidArgumentError, match=r"line 3 is damaged, .*; restore the file"):
        read_storage(str(file)).open()


def test_half_a_line_at_the_end_of_a_journal_is_dropped(tmp_path):
    storage = str(tmp_path / "studies.journal")
    with open_study(settings(storage), bowl()) as study:
        study.tell(study.ask(), 1.0)
    with Path(storage).open("a") as journal:
        journal.write('{"op_code":4,')
    with open_study(settings(storage), bowl()) as study:
        study.tell(study.ask(), 2.0)
    with open_study(settings(storage), bowl()) as study:
        assert [trial.value for trial in study.get_trials()] == [1.0, 2.0]


def test_an_unreachable_server_is_one_sentence_without_the_password():
    password = "secret"  # noqa: S105 (here, so that no line below shows it)
    storage = f"postgresql://me:{password}@127.0.0.1:1/studies"
    with pytest.raises(InvalidArgumentError, match=r"me@127\.0\.0\.1:1/studies can't be") as caught:
        open_study(settings(storage), bowl())
    said = "".join(traceback.format_exception(caught.value))
    assert password not in said
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_wrong_password_is_shown_nowhere(postgresql):
    wrong = postgresql.replace("hush%2Fhush", "wrong%2Fword")
    with pytest.raises(InvalidArgumentError, match="password authentication failed") as caught:
        open_study(settings(wrong), bowl())
    said = "".join(traceback.format_exception(caught.value))
    assert "wrong/word" not in said
    assert "wrong%2Fword" not in said
    assert "hush" not in repr(settings(postgresql)) + repr(read_storage(postgresql))


@pytest.mark.slow
def test_workers_share_a_server_and_one_that_is_killed_loses_no_trial(postgresql):
    command = [sys.executable, BOWL, postgresql, "shared"]
    workers = [subprocess.Popen([*command, "12", "0.3"]) for _ in range(4)]
    victim = subprocess.Popen([*command, "1", "600"])
    try:
        with _opened(postgresql) as storage:
            # A process that opens the study later would fail the victim's trial and run it again.
            _until_all_have_opened(storage, [*workers, victim])
            _until_a_trial_runs(storage, victim)
    finally:
        victim.kill()
        victim.wait()
    assert [worker.wait() for worker in workers] == [0] * 4
    with open_study(settings(postgresql, "shared"), bowl()) as study:
        trials = study.get_trials()
        queued = [trial for trial in trials if trial.state == TrialState.WAITING]
        assert len(queued) == 1
        trial = study.ask()
        study.tell(trial, sum(bowl().suggest(trial).values()))
        trials = study.get_trials()
    (failed,) = (trial for trial in trials if trial.state == TrialState.FAIL)
    (again,) = (trial for trial in trials if RETRY_OF in trial.user_attrs)
    assert failed.user_attrs[FAILURE] == "its process ended before the trial did"
    assert (again.user_attrs[RETRY_OF], again.params) == (failed.number, failed.params)
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(done) == 4 * 12 + 1
    assert sorted(trial.number for trial in trials) == list(range(len(done) + 1))
    assert len({tuple(trial.params.values()) for trial in done}) == len(done)


@contextlib.contextmanager
def _opened(address: str) -> Iterator[Any]:
    storage: Any = read_storage(address).open()
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _until_all_have_opened(storage: Any, processes: list[subprocess.Popen]) -> None:
    """Wait until each process has claimed a trial, so that it has opened the study."""
    numbers = {process.pid for process in processes}
    _until(lambda: numbers <= {_owner(trial) for trial in _trials(storage)})


def _until_a_trial_runs(storage: Any, process: subprocess.Popen) -> None:
    """Wait until a process has drawn the parameters of a trial."""

    def has_drawn() -> bool:
        assert process.poll() is None
        mine = [trial for trial in _trials(storage) if _owner(trial) == process.pid]
        return any(trial.state == TrialState.RUNNING and len(trial.params) == 2 for trial in mine)

    _until(has_drawn)


def _trials(storage: Any) -> list[FrozenTrial]:
    """Return the trials, if the study is there already."""
    try:
        study = optuna.load_study(study_name="shared", storage=storage)
    except KeyError:
        return []
    return study.get_trials(deepcopy=False)


def _owner(trial: FrozenTrial) -> int | None:
    # A trial is there before it says whose it is.
    return trial.user_attrs.get(WORKER, {}).get("process")


def _until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.2)
