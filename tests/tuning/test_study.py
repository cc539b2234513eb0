"""A study: resumed, refused or shared without a trial lost, in a storage that is checked first."""

import contextlib
import dataclasses
import multiprocessing
import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import text

from myriad.errors import InvalidArgumentError
from myriad.tuning import study as study_module
from myriad.tuning import tune
from myriad.tuning.settings import TuneSettings
from myriad.tuning.storage import disconnect, open_storage, shown_storage
from myriad.tuning.study import BEST_CONFIRMED, open_study, retried
from tests.child_processes import until
from tests.tuning import small_space
from tests.tuning.bowl import MIDDLE, bowl, run, settings

BOWL = Path(__file__).with_name("bowl.py")


def storages(folder: Path) -> dict[str, str]:
    return {"sqlite": f"sqlite:///{folder}/studies.db", "journal": f"{folder}/studies.journal"}


@pytest.fixture(params=["sqlite", pytest.param("journal", marks=pytest.mark.long)])
def storage(request, tmp_path) -> str:
    """A file that several processes may use. Its folder is made with it."""
    return storages(tmp_path / "new" / "folder")[request.param]


def trials_of(storage: str, study: str = "bowl") -> list[FrozenTrial]:
    """Return the trials of a study, as Optuna reads them; none if it isn't there yet."""
    opened = open_storage(storage)
    try:
        return optuna.load_study(study_name=study, storage=opened).get_trials()
    except KeyError:
        return []
    finally:
        disconnect(opened)


@contextlib.contextmanager
def study_of(made: TuneSettings, **space: Any):
    study = open_study(made, bowl(**space))
    try:
        yield study
    finally:
        disconnect(study._storage)


def states(trials: list[FrozenTrial]) -> list[str]:
    return [trial.state.name for trial in trials]


def test_the_same_seed_gives_the_same_first_trials_and_another_others(tmp_path):
    drawn = []
    for number, seed in enumerate([1, 1, 2]):
        trials = run(settings(f"{tmp_path}/{number}.journal", seed=seed), 4)
        drawn.append([trial.params for trial in trials])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[2][0] == MIDDLE  # what is known to be good comes first
    assert drawn[0][1:] != drawn[2][1:]


@pytest.fixture(scope="module")
def two_studies(tmp_path_factory) -> str:
    """A file with the study `bowl` of one trial, and one that Optuna alone made."""
    storage = storages(tmp_path_factory.mktemp("studies"))["sqlite"]
    run(settings(storage), 1)
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.optimize(lambda trial: 0.0, n_trials=1)
    disconnect(theirs._storage)
    return storage


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": "pendulum-control"}, "env cartpole-control, but this one has env pendulum"),
        ({"num_steps": 60_000}, "num_steps 50000, but this one has num_steps 60000"),
        ({"seed": 43}, "seed 42, but this one has seed 43"),
        ({"objectives": ("train_s",)}, r"objectives .*'return'.* has objectives .*'train_s'"),
        ({"options": {"env.gravity": 3.7}}, "env_options"),
        ({"fail_if_exists": True}, "study_name='bowl' already exists"),
        ({"study_name": "theirs"}, "study theirs has env None, but this one has env cartpole"),
        ({"warm_start": ("nothing",)}, "unknown study 'nothing'"),
        ({"warm_start": ("theirs",)}, "warm_start must .* but got 'theirs'"),
        ({}, r"space .*, but this one has space"),
    ],
)
def test_a_study_of_another_campaign_or_space_is_refused(two_studies, change, says):
    space = bowl() if change else bowl(reach=2.0)
    with pytest.raises(InvalidArgumentError, match=says):
        open_study(dataclasses.replace(settings(two_studies), **change), space)
    assert len(trials_of(two_studies)) == 1


def test_the_best_of_another_study_is_tried_once_in_one_that_exists_or_not(storage):
    before = run(settings(storage, "before"), 5)
    run(settings(storage, "after"), 1)
    best = max(before, key=lambda trial: trial.value)
    worst = min(before, key=lambda trial: trial.value)
    for _ in range(2):
        run(settings(storage, "after", warm_start=("before",)), 1)
    with study_of(settings(storage, "before")) as study:
        # What was best on fresh seeds counts, and not the best value.
        study.set_user_attr(BEST_CONFIRMED, worst.number)
    run(settings(storage, "new", warm_start=("before",)), 2)
    for name, found in (("after", best), ("new", worst)):
        trials = trials_of(storage, name)
        assert [trial.params for trial in trials].count(found.params) == 1
        assert states(trials) == ["COMPLETE"] * len(trials)


def silence(storage: str) -> None:
    """Age the heartbeats of a database, as if their processes had been silent for years."""
    opened: Any = open_storage(storage)
    with opened.engine.begin() as connection:
        connection.execute(text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))
    disconnect(opened)


def test_a_trial_of_a_silent_process_is_tried_again_by_another_and_left_to_it(
    tmp_path, monkeypatch
):
    storage = storages(tmp_path)["sqlite"]
    monkeypatch.setattr(study_module, "HEARTBEAT_S", 1e6)  # none but a trial's first

    def fall_silent(happened, training, study):
        if happened == "ready" and training.origin.number == 0:
            run(settings(storage), 1)
            # As long as its heartbeat is fresh, it may be alive, and is left alone.
            assert states(trials_of(storage)) == ["RUNNING", "COMPLETE"]
            silence(storage)
            run(settings(storage), 1)

    failed, other, again, in_its_place = run(settings(storage), 1, on_event=fall_silent)
    assert states([failed, other, again, in_its_place]) == ["FAIL", *["COMPLETE"] * 3]
    assert retried([again]) == {failed.number}
    assert again.params == failed.params == MIDDLE


def test_an_interrupt_queues_what_runs_however_often_it_comes(storage):
    for _ in range(6):
        trials = run(settings(storage), 1, stop_after=1)
    assert states(trials) == ["FAIL"] * 6 + ["WAITING"]
    assert retried(trials) == set(range(6))
    assert run(settings(storage), 1)[-1].params == MIDDLE


def test_no_trial_starts_after_the_timeout(monkeypatch):
    started = []

    def let_time_pass(happened, training, study):
        if happened == "ready":
            started.append(training.origin.number)
        if happened == "over":
            monkeypatch.setattr(study_module, "time", SimpleNamespace(time=lambda: 1e12))

    run(settings(None, timeout=1_000.0), 9, on_event=let_time_pass)
    assert started == [0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("journal", marks=pytest.mark.long)])
def test_processes_share_a_new_file(tmp_path, kind):
    storage = storages(tmp_path / "new")[kind]
    started = [subprocess.Popen([sys.executable, BOWL, storage, "bowl", "5"]) for _ in range(2)]
    assert [process.wait() for process in started] == [0] * 2
    trials = trials_of(storage)
    assert [trial.number for trial in trials] == list(range(10))
    assert states(trials) == ["COMPLETE"] * 10
    assert len({tuple(trial.params.values()) for trial in trials}) == 10


@pytest.mark.long
def test_trials_of_killed_processes_are_run_again_by_others(tmp_path):
    ended = []
    killed = []

    def kill_them(study, trial):
        ended.append(trial.number)
        if not killed:
            # Both have as many as fit, so that neither is asking for another one.
            only = (TrialState.RUNNING,)
            until(lambda: sum(len(each.params) == 3 for each in study.get_trials(states=only)) == 4)
            killed.extend(multiprocessing.active_children())
            for each in killed:
                each.kill()

    sizes = {"n_jobs": 2, "n_trials": 8, "num_steps": 20_480}
    made = small_space.settings(tmp_path, **sizes, pruner="none", output=tmp_path)
    with tune(made, [kill_them]) as result:
        trials = result.study.get_trials()
        assert result.num_ended == len({*ended}) == 8
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert len(complete) == 8
    assert failed
    assert len(complete) + len(failed) == len(trials)
    again = {number: trial.params for trial in complete for number in retried([trial])}
    for trial in failed:
        # Parameters that were not drawn yet are drawn when it is run again.
        assert again[trial.number] == again[trial.number] | trial.params
    assert len(killed) == 2
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        ("sqlit:///studies.db", "sqlit"),
        ("mysql://me:secret@host/studies", "Failed to import DB access module"),
        ("postgresql://me:secret@host:port/studies", "invalid literal for int"),
        ("postgresql://me:se@cret@host/studies", "storage must have %40 for an @"),
        ("me:secret@host/studies.db", "Could not parse"),
        ("", "must be a name"),
    ],
)
def test_a_storage_that_cant_be_used_is_refused_without_its_password(
    storage, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=says) as refused:
        open_storage(storage)
    assert "cret@" not in "".join(traceback.format_exception(refused.value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.db", b"no database" * 100),
        ("app.db", "CREATE TABLE studies (patient)"),
        ("text.journal", b"no journal"),
        ("other.journal", b'{"results": [1, 2, 3]}\n'),
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
    storage = f"sqlite:///{tmp_path}/%61pp.db" if name == "app.db" else str(file)
    with pytest.raises(InvalidArgumentError, match=rf"{name}.*is not "):
        open_storage(storage)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: before}


@pytest.mark.parametrize("name", ["studies.db", "studies.journal"])
def test_a_file_that_is_empty_or_that_optuna_made_is_used(tmp_path, name):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).touch()
    optunas = tmp_path / name
    storage = f"sqlite:///{optunas}"
    if name.endswith(".journal"):
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(optunas)))
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.add_trial(optuna.create_trial(value=1.0))
    disconnect(theirs._storage)
    for file in (tmp_path / "new" / name, optunas):
        run(settings(str(file)), 1)
    assert [trial.value for trial in trials_of(str(optunas), "theirs")] == [1.0]


@pytest.mark.slow
def test_a_wrong_password_is_shown_nowhere(postgresql):
    wrong = postgresql.replace("hush%2Fhush", "wrong%2Fword")
    with pytest.raises(InvalidArgumentError, match="password authentication failed") as caught:
        open_study(settings(wrong), bowl())
    said = "".join(traceback.format_exception(caught.value))
    assert "wrong/word" not in said
    assert "wrong%2Fword" not in said
    assert "hush" not in repr(settings(postgresql)) + shown_storage(postgresql)
