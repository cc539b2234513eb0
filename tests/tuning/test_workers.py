"""Trials in several processes: one that is killed loses none of its trials, whenever it is."""

import dataclasses
import os
import signal

import pytest
from optuna.trial import TrialState

from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import read_storage
from myriad.tuning.study import open_study
from myriad.tuning.workers import run_workers
from tests.tuning import small_space
from tests.tuning.small_space import DeadlySpace

pytestmark = pytest.mark.long


def campaign(tmp_path, kind=SearchSpace):
    """Return a campaign of four trials in two processes, which prunes none, and its space."""
    settings = small_space.settings(tmp_path, n_jobs=2, n_trials=4, pruner="none", output=tmp_path)
    return settings.completed(), kind.load("ppo", file=settings.space)


def run_all(settings, space, **arguments):
    """Run a campaign and return its trials."""
    with open_study(settings, space) as study:
        run_workers(study, settings, space, **arguments)
        return study.get_trials()


def kill_owner(number, tmp_path):
    """Kill the process that runs a trial, as the storage says, and return its number."""
    storage = read_storage(str(tmp_path / "s.db")).open()
    study_id = storage.get_study_id_from_name("s")
    (trial,) = (each for each in storage.get_all_trials(study_id) if each.number == number)
    process = trial.user_attrs["worker"]["process"]
    os.kill(process, signal.SIGKILL)
    return process


def require_all_done(trials):
    """Check that four trials were completed, and all that were lost are among them."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert len(complete) == 4
    assert failed
    assert len(complete) + len(failed) == len(trials)
    again = {trial.user_attrs.get("retry_of"): trial.params for trial in complete}
    for trial in failed:
        # Parameters that were not drawn yet are drawn when it is run again.
        assert again[trial.number] == again[trial.number] | trial.params


def test_trials_of_a_killed_process_are_run_again_by_another(tmp_path):
    killed = []

    def kill_the_first(event):
        if event.kind == "started" and not killed:
            killed.append(kill_owner(event.trial, tmp_path))

    require_all_done(run_all(*campaign(tmp_path), on_event=kill_the_first))


def test_they_are_run_again_if_somebody_else_fails_them_before_the_parent_looks(tmp_path):
    killed = []
    settings, space = campaign(tmp_path)

    def kill_the_first_and_open_the_study(event):
        if event.kind != "started" or killed:
            return
        killed.append(kill_owner(event.trial, tmp_path))
        # Wait for its end, but leave its exit code to the parent.
        os.waitid(os.P_PID, killed[0], os.WEXITED | os.WNOWAIT)
        with open_study(settings, space) as study:
            failed = study.get_trials(states=(TrialState.FAIL,))
        assert event.trial in [trial.number for trial in failed]

    require_all_done(run_all(settings, space, on_event=kill_the_first_and_open_the_study))


@pytest.mark.parametrize("num_drawn", [0, 1])
def test_a_process_that_is_killed_while_it_draws_parameters_loses_no_trial(tmp_path, num_drawn):
    settings, space = campaign(tmp_path, DeadlySpace)
    space = dataclasses.replace(space, marker=tmp_path / "marker", num_drawn=num_drawn)
    trials = run_all(settings, space)
    assert (tmp_path / "marker").exists()
    require_all_done(trials)
