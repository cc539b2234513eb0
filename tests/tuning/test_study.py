"""A study is resumed, refused under another campaign's name, and shared without a trial lost."""

import dataclasses
import random
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.tuning.claims import FAILURE, RETRY_OF, SOURCE
from myriad.tuning.storage import read_storage
from myriad.tuning.study import open_study
from tests.tuning.bowl import Bowl, run, settings

COMPLETE = TrialState.COMPLETE
BOWL = Path(__file__).with_name("bowl.py")


def storages(folder: Path) -> dict[str, str]:
    return {"sqlite": f"sqlite:///{folder}/studies.db", "journal": f"{folder}/studies.journal"}


@pytest.fixture(params=["sqlite", "journal"])
def storage(request, tmp_path) -> str:
    """A file that several processes may use. Its folder is made with it."""
    return storages(tmp_path / "new" / "folder")[request.param]


def trials_of(storage: str, study: str = "bowl") -> list[optuna.trial.FrozenTrial]:
    with open_study(settings(storage, study), Bowl()) as opened:
        return opened.get_trials()


def ask_and_be_killed(study) -> None:
    """Leave a trial as a process does that is killed before it can say whose it is."""
    study._storage.set_trial_state_values(
        study.get_trials(states=(TrialState.WAITING,))[0]._trial_id, TrialState.RUNNING
    )


def test_a_study_is_resumed_with_the_trials_it_has(storage):
    run(settings(storage), 3)
    run(settings(storage), 4)
    trials = trials_of(storage)
    assert [trial.number for trial in trials] == list(range(7))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert len({tuple(trial.params.values()) for trial in trials}) == 7


@pytest.mark.slow
def test_the_same_seed_gives_the_same_first_trials_and_another_others(tmp_path):
    drawn = []
    for number, seed in enumerate([1, 1, 2]):
        storage = f"sqlite:///{tmp_path}/{number}.db"
        run(settings(storage, seed=seed), 4)
        drawn.append([trial.params for trial in trials_of(storage)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[2][0]  # what is known to be good comes first
    assert drawn[0][1:] != drawn[2][1:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": "pendulum-control"}, "env cartpole-control, but this one has env pendulum"),
        ({"agent": "pqn"}, "agent ppo, but this one has agent pqn"),
        ({"num_steps": 60_000}, "num_steps 50000, but this one has num_steps 60000"),
        ({"objectives": ("train_s",)}, "objectives return, but this one has objectives train_s"),
        ({"options": {"env.gravity": 3.7}}, "env_options"),
        ({"fail_if_exists": True}, "study bowl exists in"),
    ],
)
def test_a_study_of_another_campaign_is_refused(tmp_path, change, says):
    storage = f"sqlite:///{tmp_path}/studies.db"
    run(settings(storage), 1)
    with pytest.raises(InvalidArgumentError, match=says):
        open_study(dataclasses.replace(settings(storage), **change), Bowl())
    assert len(trials_of(storage)) == 1


def test_a_study_of_another_space_is_refused(storage):
    run(settings(storage), 1)
    with pytest.raises(InvalidArgumentError, match="study bowl has another search space"):
        open_study(settings(storage), Bowl(fingerprint="other"))


def test_a_study_that_something_else_made_is_refused(tmp_path):
    storage = f"sqlite:///{tmp_path}/studies.db"
    optuna.create_study(study_name="bowl", storage=storage).optimize(lambda trial: 0.0, n_trials=1)
    with pytest.raises(InvalidArgumentError, match="was not made by Myriad"):
        open_study(settings(storage), Bowl())


def test_the_best_of_another_study_is_tried_first(storage):
    run(settings(storage, "before"), 5)
    best = max(trials_of(storage, "before"), key=lambda trial: trial.value)
    run(settings(storage, "after", warm_start=("before",)), 3)
    first = [trial.params for trial in trials_of(storage, "after")]
    # The other's best may be what is known anyway, which is tried once.
    assert best.params in first[:2]
    assert trials_of(storage, "after")[0].user_attrs[SOURCE] == "known"
    with pytest.raises(UnknownNameError, match="unknown study 'befor'; did you mean 'before'"):
        open_study(settings(storage, "third", warm_start=("befor",)), Bowl())
    assert {study.study_name for study in _opened(storage).get_all_studies()} == {"before", "after"}


def _opened(storage: str):
    return read_storage(storage).open()


@pytest.mark.slow
def test_a_trial_of_a_killed_process_is_failed_and_tried_again(storage):
    killed = subprocess.Popen([sys.executable, BOWL, storage, "bowl", "9", "60"])
    try:
        _until(lambda: Path(storage.removeprefix("sqlite:///")).exists() and _running(storage))
    finally:
        killed.kill()
        killed.wait()
    trials = trials_of(storage)
    (failed,) = (trial for trial in trials if trial.state == TrialState.FAIL)
    assert failed.user_attrs[FAILURE] == "its process ended before the trial did"
    run(settings(storage), 2)
    (again,) = (trial for trial in trials_of(storage) if RETRY_OF in trial.user_attrs)
    assert again.user_attrs[RETRY_OF] == failed.number
    assert (again.state, again.params) == (TrialState.COMPLETE, failed.params)


def _running(storage: str) -> bool:
    """Return whether a trial of another process has reported something or has its parameters."""
    try:
        study = optuna.load_study(study_name="bowl", storage=_opened(storage))
    except KeyError:
        return False
    running = study.get_trials(states=(TrialState.RUNNING,))
    return any(len(trial.params) == 2 for trial in running)


def _until(happens) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_trial_of_a_process_that_lives_is_left_alone(storage):
    with open_study(settings(storage), Bowl()) as study:
        trial = study.ask()
        with open_study(settings(storage), Bowl()) as other:
            assert other.fail_stale() == []
        study.tell(trial, 1.0)
    assert trials_of(storage)[0].state == TrialState.COMPLETE


def test_a_trial_without_an_owner_is_failed(storage):
    with open_study(settings(storage), Bowl()) as study:
        ask_and_be_killed(study)
        (failed,) = study.fail_stale()
    assert failed.number == 0
    # The queued parameters are tried again.
    assert trials_of(storage)[1].system_attrs["fixed_params"] == {"x": 0.5, "y": 0.5}


def test_a_trial_that_always_ends_its_process_is_given_up(storage):
    for _ in range(6):
        with open_study(settings(storage), Bowl(known=({"x": 0.1, "y": 0.2},))) as study:
            if not study.get_trials(states=(TrialState.WAITING,)):
                break
            ask_and_be_killed(study)
            study.fail_stale()
    assert [trial.state for trial in trials_of(storage)] == [TrialState.FAIL] * 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_five_campaigns_at_once_in_one_file_lock_nobody_out(tmp_path, kind):
    storage = storages(tmp_path / "new")[kind]
    started = [
        subprocess.Popen([sys.executable, BOWL, storage, f"campaign-{number}", "20"])
        for number in range(5)
    ]
    assert [process.wait() for process in started] == [0] * 5
    for number in range(5):
        trials = trials_of(storage, f"campaign-{number}")
        assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 20
        assert all(len(trial.intermediate_values) == 3 for trial in trials)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_several_processes_of_one_study_draw_no_trial_twice(tmp_path, kind):
    storage = storages(tmp_path)[kind]
    started = [
        subprocess.Popen([sys.executable, BOWL, storage, "bowl", "15"]) for number in range(3)
    ]
    assert [process.wait() for process in started] == [0] * 3
    trials = trials_of(storage)
    assert sorted(trial.number for trial in trials) == list(range(45))
    assert len({tuple(trial.params.values()) for trial in trials}) == 45


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_killed_at_random_moments_loses_nothing_and_repeats_nothing(tmp_path, kind):
    storage = storages(tmp_path)[kind]
    kill_and_resume(storage, kills=3, seed=0)


def kill_and_resume(storage: str, kills: int, seed: int) -> None:
    """Kill a campaign again and again, finish it, and compare what it had before with what it has.

    `python -c "from tests.tuning.test_study import kill_and_resume; ..."` kills it more often.
    """
    moments = random.Random(seed)
    finished: dict[int, tuple[dict, float | None]] = {}
    for _ in range(kills):
        killed = subprocess.Popen([sys.executable, BOWL, storage, "bowl", "1000", "0.03"])
        try:
            _until_more_are_done(storage, len(finished))
            time.sleep(moments.uniform(0, 0.5))
        finally:
            killed.kill()
            killed.wait()
        now = {trial.number: trial for trial in trials_of(storage) if trial.state == COMPLETE}
        assert all(
            (now[number].params, now[number].value) == finished[number] for number in finished
        )
        finished = {number: (trial.params, trial.value) for number, trial in now.items()}
    run(settings(storage), kills + 1)  # what was under way is tried again first
    trials = trials_of(storage)
    assert {trial.state for trial in trials} <= {COMPLETE, TrialState.FAIL}
    done = [tuple(trial.params.values()) for trial in trials if trial.state == COMPLETE]
    assert len(set(done)) == len(done)
    for trial in trials:
        if trial.state == TrialState.FAIL:
            assert any(each.user_attrs.get(RETRY_OF) == trial.number for each in trials)


def _until_more_are_done(storage: str, before: int) -> None:
    _until(lambda: _finished_count(storage) > before)


def _finished_count(storage: str) -> int:
    try:
        study = optuna.load_study(study_name="bowl", storage=_opened(storage))
    except KeyError:
        return 0
    return len(study.get_trials(deepcopy=False, states=(COMPLETE,)))
