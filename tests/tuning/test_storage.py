"""A storage is checked before it is made, and its password is shown nowhere."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
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
        "me:secret@host/studies.db",
        "host=h password=secret@",
        "studies",
        "studies/",
        "studies.db?mode=ro",
        "",
    ],
)
def test_a_misspelt_storage_is_refused_in_a_sentence_without_its_password(storage):
    with pytest.raises(InvalidArgumentError, match="storage must ") as refused:
        read_storage(storage)
    said = "".join(traceback.format_exception(refused.value))
    assert "\n" not in str(refused.value)
    assert "cret@" not in said


def test_a_plain_name_is_a_database_or_a_journal():
    kinds = [read_storage(name).kind for name in ("s.db", "a b/s.sqlite", "s.journal")]
    assert kinds == ["sqlite", "sqlite", "journal"]
    assert read_storage("/a/s.db") == read_storage("sqlite:////a/s.db")


_RECORD = b'{"op_code":0,"worker_id":"a","study_name":"s","directions":[2]}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.db", b"no database" * 100),
        ("byte.db", b"?"),
        ("short.db", b"short"),
        ("app.db", "CREATE TABLE users (name)"),
        ("app.db", "CREATE TABLE studies (patient)"),
        ("app.db", "CREATE VIEW year AS SELECT 2026"),
        ("text.journal", b"no journal"),
        ("other.journal", b'{"results": [1, 2, 3]}'),
        ("other.journal", b'{"results": [1, 2, 3]}\n'),
        ("empty_lines.journal", b"\n\n"),
        *(
            ("damaged.journal", _RECORD + damage)
            for damage in (b"\0\0{}\n", b"[]\n", b"{}\n", b"[" * 100_000, b'{"op_code":4,')
        ),
    ],
)
def test_nothing_is_written_to_a_file_that_is_not_optunas(tmp_path, name, content):
    file = tmp_path / name
    if isinstance(content, str):
        with contextlib.closing(sqlite3.connect(file)) as app:
            app.execute(content)
    else:
        file.write_bytes(content)
    before = file.read_bytes()
    with pytest.raises(InvalidArgumentError, match="can't be used: ") as refused:
        read_storage(str(file)).open()
    assert "\n" not in str(refused.value)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: before}


def test_a_folder_or_a_pipe_is_no_storage(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InvalidArgumentError, match="can't be used: it is not a file"):
            read_storage(f"sqlite:///{path}").open()


@pytest.mark.parametrize("name", ["studies.db", "studies.journal"])
def test_a_file_that_is_empty_or_that_optuna_made_is_used(tmp_path, name):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).touch()
    optunas = tmp_path / name
    storage = f"sqlite:///{optunas}"
    if name.endswith(".journal"):
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(optunas)))
    optuna.create_study(study_name="theirs", storage=storage).add_trial(
        optuna.create_trial(value=1.0)
    )
    for file in (tmp_path / "new" / name, optunas):
        with open_study(settings(str(file)), bowl()) as study:
            study.tell(study.ask(), 2.0)
    assert optuna.load_study(study_name="theirs", storage=storage).best_value == 1.0


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
