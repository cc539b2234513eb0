"""A study is resumed, refused under another campaign's name, and shared without a trial lost."""

import contextlib
import dataclasses
import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.tuning import campaign
from myriad.tuning.claims import FAILURE, RETRY_OF, SOURCE, WORKER
from myriad.tuning.session import load_space
from myriad.tuning.settings import TuneSettings
from myriad.tuning.storage import read_storage
from myriad.tuning.study import BEST_CONFIRMED, open_study
from tests.tuning.bowl import bowl, run, settings

COMPLETE = TrialState.COMPLETE
BOWL = Path(__file__).with_name("bowl.py")


def storages(folder: Path) -> dict[str, str]:
    return {"sqlite": f"sqlite:///{folder}/studies.db", "journal": f"{folder}/studies.journal"}


@pytest.fixture(params=["sqlite", "journal"])
def storage(request, tmp_path) -> str:
    """A file that several processes may use. Its folder is made with it."""
    return storages(tmp_path / "new" / "folder")[request.param]


def trials_of(storage: str, study: str = "bowl", **fields: Any) -> list[optuna.trial.FrozenTrial]:
    with open_study(settings(storage, study, **fields), bowl()) as opened:
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
        drawn.append([trial.params for trial in trials_of(storage, seed=seed)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[2][0]  # what is known to be good comes first
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
        ({"objectives": ("train_s",)}, "objectives return, but this one has objectives train_s"),
        ({"options": {"env.gravity": 3.7}}, "env_options"),
        ({"fail_if_exists": True}, "study bowl exists in"),
    ],
)
def test_a_study_of_another_campaign_is_refused(tmp_path, change, says):
    storage = f"sqlite:///{tmp_path}/studies.db"
    run(settings(storage), 1)
    with pytest.raises(InvalidArgumentError, match=says):
        open_study(dataclasses.replace(settings(storage), **change), bowl())
    assert len(trials_of(storage)) == 1


def test_a_study_of_another_space_is_refused(storage):
    run(settings(storage), 1)
    with pytest.raises(InvalidArgumentError, match="study bowl has another search space"):
        open_study(settings(storage), bowl(reach=2.0))


def test_a_study_that_something_else_made_is_refused(tmp_path):
    storage = f"sqlite:///{tmp_path}/studies.db"
    optuna.create_study(study_name="bowl", storage=storage).optimize(lambda trial: 0.0, n_trials=1)
    with pytest.raises(InvalidArgumentError, match="was not made by Myriad"):
        open_study(settings(storage), bowl())


@pytest.mark.parametrize(
    "change",
    [
        "trial_values SET value_type = 'x'",
        "trial_values SET objective = 'x'",
        "trial_values SET objective = 1",
        "trials SET datetime_start = -1",
        "trials SET datetime_complete = NULL",
        "trial_params SET distribution_json = '[1'",
        "trial_params SET param_value = 99.0",
        "study_user_attributes SET value_json = '3'",
        "trial_user_attributes SET value_json = '3' WHERE key = 'worker'",
        "trial_user_attributes SET key = 'retry_of', value_json = '0' WHERE key = 'worker'",
        "trial_user_attributes SET key = 'failure' WHERE key = 'worker'",
        "trial_intermediate_values SET intermediate_value = 'x'",
        "trial_system_attributes SET value_json = '[]'",
        "trial_system_attributes SET key = NULL",
    ],
)
def test_a_study_that_was_damaged_by_hand_is_one_sentence(change, tmp_path):
    storage = f"sqlite:///{tmp_path}/studies.db"
    run(settings(storage), 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "studies.db")) as studies:
        studies.execute(f"UPDATE {change}")
        studies.commit()
    with pytest.raises(InvalidArgumentError, match=r"^[^\n]+\.$"):
        open_study(settings(storage), bowl())


def test_the_best_of_another_study_is_tried_first(storage):
    run(settings(storage, "before"), 5)
    best = max(trials_of(storage, "before"), key=lambda trial: trial.value)
    run(settings(storage, "after", warm_start=("before",)), 3)
    first = [trial.params for trial in trials_of(storage, "after")]
    # The other's best may be what is known anyway, which is tried once.
    assert best.params in first[:2]
    assert trials_of(storage, "after")[0].user_attrs[SOURCE] == "known"
    with pytest.raises(UnknownNameError, match="unknown study 'befor'; did you mean 'before'"):
        open_study(settings(storage, "third", warm_start=("befor",)), bowl())
    assert {study.study_name for study in _opened(storage).get_all_studies()} == {"before", "after"}


def test_the_defaults_of_an_agent_are_tried_first_with_its_network():
    config = TuneSettings("cartpole-control").completed()
    with open_study(config, load_space(config)) as study:
        first = study.get_trials()[0].system_attrs["fixed_params"]
    assert first["agent.hidden_sizes"] == "[64, 64]"
    assert len(first) == len(load_space(config).parameters)


def test_the_best_on_fresh_seeds_of_another_study_is_tried_before_its_best_value(storage):
    run(settings(storage, "before"), 3)
    worst = min(trials_of(storage, "before"), key=lambda trial: trial.value)
    with open_study(settings(storage, "before"), bowl()) as study:
        study.set_user_attr(BEST_CONFIRMED, worst.number)
    run(settings(storage, "after", warm_start=("before",)), 2)
    assert worst.params in [trial.params for trial in trials_of(storage, "after")]
    with pytest.raises(InvalidArgumentError, match="another study than 'after' itself"):
        open_study(settings(storage, "after", warm_start=("after",)), bowl())


def test_the_best_of_another_study_is_tried_in_one_that_exists(storage):
    run(settings(storage, "before"), 5)
    best = max(trials_of(storage, "before"), key=lambda trial: trial.value)
    run(settings(storage, "after"), 1)
    run(settings(storage, "after", warm_start=("before",)), 2)
    run(settings(storage, "after", warm_start=("before",)), 1)
    trials = trials_of(storage, "after")
    # Once, however often it is named.
    assert [trial.number for trial in trials if trial.params == best.params] in ([0], [1])
    assert [trial.user_attrs.get(SOURCE) for trial in trials].count("before") <= 1


def test_of_the_best_of_another_space_what_fits_is_tried(tmp_path):
    file = tmp_path / "best.json"
    file.write_text(json.dumps({"agent": "ppo", "best": {"params": {"x": 0.1, "y": 7.0}}}))
    warm = settings(None, warm_start=(str(file),))
    with open_study(warm, bowl()) as study:
        queued = [trial.system_attrs["fixed_params"] for trial in study.get_trials()]
        assert queued == [{"x": 0.5, "y": 0.5}, {"x": 0.1}]
        for _ in range(2):
            study.tell(drawn := study.ask(), sum(bowl().suggest(drawn).values()))
        assert study.get_trials()[1].params["x"] == 0.1
    file.write_text("[" * 100_000)
    with pytest.raises(InvalidArgumentError, match="has no best trial to start from"):
        open_study(warm, bowl())
    file.write_text(json.dumps({"agent": "ppo", "best": {"params": {"z": 0.1}}}))
    with pytest.raises(InvalidArgumentError, match=r"can be drawn from bowl\.toml, but nothing"):
        open_study(warm, bowl())


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
    with open_study(settings(storage), bowl()) as study:
        trial = study.ask()
        with open_study(settings(storage), bowl()) as other:
            assert other.fail_stale() == []
        study.tell(trial, 1.0)
    assert trials_of(storage)[0].state == TrialState.COMPLETE


def test_a_trial_without_an_owner_is_failed(storage):
    with open_study(settings(storage), bowl()) as study:
        ask_and_be_killed(study)
        (failed,) = study.fail_stale()
    assert failed.number == 0
    # The queued parameters are tried again.
    assert trials_of(storage)[1].system_attrs["fixed_params"] == {"x": 0.5, "y": 0.5}


def test_a_trial_that_always_ends_its_process_is_given_up(storage):
    for _ in range(6):
        with open_study(settings(storage), bowl({"x": 0.1, "y": 0.2})) as study:
            if not study.get_trials(states=(TrialState.WAITING,)):
                break
            ask_and_be_killed(study)
            study.fail_stale()
    assert [trial.state for trial in trials_of(storage)] == [TrialState.FAIL] * 4


def test_parameters_outlive_any_number_of_interrupts(storage):
    for _ in range(6):
        with open_study(settings(storage), bowl()) as study:
            trial = study.ask()
            params = bowl().suggest(trial)
            study.give_back(trial, "it was interrupted")
    trials = trials_of(storage)
    assert params == {"x": 0.5, "y": 0.5}
    assert [trial.state for trial in trials] == [TrialState.FAIL] * 6 + [TrialState.WAITING]


def test_a_trial_that_another_process_gave_back_is_given_back_once(storage):
    with open_study(settings(storage), bowl()) as study:
        trial = study.ask()
        study.give_back(trial, "it was interrupted")
        study.give_back(trial, "it was interrupted")
    assert len(trials_of(storage)) == 2


def test_a_silent_machine_loses_its_trial_while_others_go_on(tmp_path, monkeypatch):
    """The trial is queued again by a campaign that runs, and not only by one that begins."""
    storage = f"sqlite:///{tmp_path}/studies.db"
    monkeypatch.setattr(campaign, "_LOOK_S", 0.0)
    monkeypatch.setattr(campaign, "train_all", lambda programs, source, _: source.take(None))
    campaign_settings = settings(storage)
    with open_study(campaign_settings, bowl()) as silent:
        trial = silent.ask()
        params = bowl().suggest(trial)
        trial.set_user_attr(WORKER, trial.user_attrs[WORKER] | {"host": "elsewhere"})
        with open_study(campaign_settings, bowl()) as study:
            campaign.run(study, campaign_settings, bowl())
            assert study.get_trials()[trial.number].state == TrialState.RUNNING
            with contextlib.closing(sqlite3.connect(tmp_path / "studies.db")) as database:
                database.execute("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'")
                database.commit()
            campaign.run(study, campaign_settings, bowl())
            trials = study.get_trials()
    assert trials[trial.number].state == TrialState.FAIL
    (again,) = (each for each in trials if each.user_attrs.get(RETRY_OF) == trial.number)
    assert again.system_attrs["fixed_params"] == params


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
    kill_and_resume(storage, kills=10, seed=0)


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
