"""A study is resumed, refused under another campaign's name, and shared without a trial lost."""

import contextlib
import dataclasses
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from myriad.errors import InvalidArgumentError
from myriad.tuning.settings import TuneSettings
from myriad.tuning.storage import disconnect, read_storage
from myriad.tuning.study import BEST_CONFIRMED, SOURCE, open_study, retried
from tests.tuning.bowl import MIDDLE, bowl, run, settings

COMPLETE = TrialState.COMPLETE
BOWL = Path(__file__).with_name("bowl.py")


def storages(folder: Path) -> dict[str, str]:
    return {"sqlite": f"sqlite:///{folder}/studies.db", "journal": f"{folder}/studies.journal"}


@pytest.fixture(params=["sqlite", "journal"])
def storage(request, tmp_path) -> str:
    """A file that several processes may use. Its folder is made with it."""
    return storages(tmp_path / "new" / "folder")[request.param]


def trials_of(storage: str, study: str = "bowl") -> list[FrozenTrial]:
    """Return the trials of a study, as Optuna reads them; none if it isn't there yet."""
    opened = read_storage(storage).open()
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


def points(trials: list[FrozenTrial]) -> set[tuple]:
    return {tuple(trial.params.values()) for trial in trials}


def until(happens: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_study_is_resumed_with_the_trials_it_has(storage):
    run(settings(storage), 3)
    run(settings(storage), 4)
    trials = trials_of(storage)
    assert [trial.number for trial in trials] == list(range(7))
    assert states(trials) == ["COMPLETE"] * 7
    assert len(points(trials)) == 7


def test_the_same_seed_gives_the_same_first_trials_and_another_others(tmp_path):
    drawn = []
    for number, seed in enumerate([1, 1, 2]):
        storage = f"sqlite:///{tmp_path}/{number}.db"
        run(settings(storage, seed=seed), 4)
        drawn.append([trial.params for trial in trials_of(storage)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[2][0] == MIDDLE  # what is known to be good comes first
    assert drawn[0][1:] != drawn[2][1:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": "pendulum-control"}, "env cartpole-control, but this one has env pendulum"),
        ({"agent": "pqn"}, "agent ppo, but this one has agent pqn"),
        ({"num_steps": 60_000}, "num_steps 50000, but this one has num_steps 60000"),
        ({"seed": 43}, "seed 42, but this one has seed 43"),
        ({"num_seeds": 5}, "num_seeds 3, but this one has num_seeds 5"),
        ({"eval_interval": 2_000}, "eval_interval 5000, but this one has eval_interval 2000"),
        (
            {"objectives": ("train_s",)},
            r"objectives \['return'\], but this one has objectives \['train_s'\]",
        ),
        ({"options": {"env.gravity": 3.7}}, "env_options"),
        ({"fail_if_exists": True}, "study_name='bowl' already exists"),
        ({"study_name": "theirs"}, "was not made by this version of Myriad"),
        ({"warm_start": ("bowl",)}, "another study than 'bowl' itself"),
        ({"warm_start": ("nothing",)}, "unknown study 'nothing'"),
        ({"warm_start": ("theirs",)}, "must name a study of ppo, but theirs is of another agent"),
    ],
)
def test_a_study_of_another_campaign_is_refused(tmp_path, change, says):
    storage = f"sqlite:///{tmp_path}/studies.db"
    run(settings(storage), 1)
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.optimize(lambda trial: 0.0, n_trials=1)
    disconnect(theirs._storage)
    with pytest.raises(InvalidArgumentError, match=says):
        open_study(dataclasses.replace(settings(storage), **change), bowl())
    assert len(trials_of(storage)) == 1
    with pytest.raises(
        InvalidArgumentError, match=r"study bowl has space .*, but this one has space"
    ):
        open_study(settings(storage), bowl(reach=2.0))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE trial_params SET distribution_json = '{'",
        "UPDATE trial_params SET param_value = 7.0",
        "UPDATE study_user_attributes SET value_json = '[]'",
        "DELETE FROM trial_values",
        "DROP TABLE trial_values",
        "UPDATE trials SET state = 'DONE'",
        "UPDATE trials SET datetime_complete = NULL",
        "UPDATE trial_values SET value_type = 'x'",
        "UPDATE trial_intermediate_values SET intermediate_value = 'x'",
        "UPDATE trial_values SET objective = 1",
        "UPDATE trial_params SET param_value = 99.0",
        "UPDATE trial_system_attributes SET key = 'retry_history', value_json = '3'",
    ],
)
def test_rows_that_somebody_edited_are_refused_in_optunas_words(tmp_path, damage):
    run(settings(str(tmp_path / "s.db")), 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database:
        database.execute(damage)
        database.commit()
    with pytest.raises(InvalidArgumentError) as refused:
        open_study(settings(str(tmp_path / "s.db")), bowl())
    assert refused.value.__suppress_context__


def test_the_best_of_another_study_is_tried_once_in_one_that_exists_or_not(storage):
    run(settings(storage, "before"), 5)
    run(settings(storage, "after"), 1)
    best = max(trials_of(storage, "before"), key=lambda trial: trial.value)
    worst = min(trials_of(storage, "before"), key=lambda trial: trial.value)
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
    assert [trial.user_attrs.get(SOURCE) for trial in trials] == ["known", "before"]


def test_of_the_best_of_another_space_what_fits_is_tried(tmp_path):
    file = tmp_path / "best.json"
    file.write_text(json.dumps({"agent": "ppo", "best": {"params": {"x": 0.1, "y": 7.0}}}))
    warm = settings(None, warm_start=(str(file),))
    with study_of(warm) as study:
        queued = [trial.system_attrs["fixed_params"] for trial in study.get_trials()]
        assert queued == [MIDDLE, {"x": 0.1}]
    for text, says in [
        ("[" * 100_000, "has no best trial to start from"),
        (json.dumps({"agent": "ppo", "best": {"params": {"z": 0.1}}}), "can be drawn from bowl"),
    ]:
        file.write_text(text)
        with pytest.raises(InvalidArgumentError, match=says):
            open_study(warm, bowl())


def silence(storage: str) -> None:
    """Age the heartbeats of a database, as if their processes had been silent for years."""
    opened: Any = read_storage(storage).open()
    from sqlalchemy import text

    with opened.engine.begin() as connection:
        connection.execute(text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))
    disconnect(opened)


@contextlib.contextmanager
def doomed(storage: str, study: str = "bowl") -> Iterator[None]:
    """Run a campaign in a process, which is killed after the block in the middle of a trial."""
    before = len(trials_of(storage, study))
    process = subprocess.Popen([sys.executable, BOWL, storage, study, "9", "600"])
    try:
        until(lambda: _runs_after(storage, study, before))
        yield
    finally:
        process.kill()
        process.wait()


def _runs_after(storage: str, study: str, before: int) -> bool:
    """Return whether a trial runs that was not there before, and has its parameters."""
    running = [
        each for each in trials_of(storage, study)[before:] if each.state == TrialState.RUNNING
    ]
    return any("seeds" in trial.user_attrs for trial in running)


@pytest.mark.slow
def test_a_trial_of_a_killed_process_is_tried_again_once_it_has_been_silent(tmp_path):
    storage = storages(tmp_path)["sqlite"]
    with doomed(storage):
        run(settings(storage), 1)
    # As long as its heartbeat is fresh, it may be alive, and is left alone.
    assert states(trials_of(storage)) == ["RUNNING", "COMPLETE"]
    silence(storage)
    run(settings(storage), 1)
    failed, other, again = trials_of(storage)
    assert states([failed, other, again]) == ["FAIL", "COMPLETE", "COMPLETE"]
    assert retried([again]) == {failed.number}
    assert again.params == failed.params == MIDDLE


@pytest.mark.slow
def test_a_trial_that_always_ends_its_process_is_given_up(tmp_path):
    storage = storages(tmp_path)["sqlite"]
    for _ in range(4):
        with doomed(storage):
            pass
        silence(storage)
    run(settings(storage), 1)
    trials = trials_of(storage)
    assert states(trials) == ["FAIL"] * 4 + ["COMPLETE"]
    assert points(trials[:4]) == {tuple(MIDDLE.values())}
    assert trials[4].params != MIDDLE


def test_an_interrupt_queues_what_runs_however_often_it_comes(storage):
    for _ in range(6):
        run(settings(storage), 1, stop_after=1)
    trials = trials_of(storage)
    assert states(trials) == ["FAIL"] * 6 + ["WAITING"]
    assert retried(trials) == set(range(6))
    run(settings(storage), 1)
    assert trials_of(storage)[-1].params == MIDDLE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_several_campaigns_and_processes_share_a_new_file(tmp_path, kind):
    storage = storages(tmp_path / "new")[kind]
    names = ["one", "two", "shared", "shared", "shared"]
    started = [subprocess.Popen([sys.executable, BOWL, storage, name, "15"]) for name in names]
    assert [process.wait() for process in started] == [0] * 5
    for name in {*names}:
        trials = trials_of(storage, name)
        assert [trial.number for trial in trials] == list(range(15 * names.count(name)))
        assert states(trials) == ["COMPLETE"] * len(trials)
        assert len(points(trials)) == len(trials)
        assert all(len(trial.intermediate_values) == 0 for trial in trials) is False


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 5), ("journal", 2)])
def test_a_study_killed_at_random_moments_loses_no_told_trial(tmp_path, kind, kills):
    kill_and_resume(storages(tmp_path)[kind], kills, seed=0)


def kill_and_resume(storage: str, kills: int, seed: int) -> None:
    """Kill a campaign again and again, and compare what it had before with what it has.

    `python -c "from tests.tuning.test_study import kill_and_resume; ..."` kills it more often.
    """
    moments = random.Random(seed)
    finished: dict[int, tuple[dict, float | None]] = {}
    for _ in range(kills):
        killed = subprocess.Popen([sys.executable, BOWL, storage, "bowl", "1000", "0.03"])
        try:
            before = len(finished)
            until(lambda n=before: states(trials_of(storage)).count("COMPLETE") > n)
            time.sleep(moments.uniform(0, 0.5))
        finally:
            killed.kill()
            killed.wait()
        done = [trial for trial in trials_of(storage) if trial.state == COMPLETE]
        now = {trial.number: (trial.params, trial.value) for trial in done}
        assert {number: now[number] for number in finished} == finished
        finished = now
    if storage.startswith("sqlite"):
        silence(storage)
        run(settings(storage), kills + 1)  # what was under way is tried again first
        trials = trials_of(storage)
        # A process that is killed before the first heartbeat of a trial leaves it running.
        assert {*states(trials)} <= {"COMPLETE", "FAIL", "RUNNING"}
        assert states(trials).count("RUNNING") <= kills
        failed = {trial.number for trial in trials if trial.state == TrialState.FAIL}
        assert failed <= retried(trials)
