"""A whole campaign in processes. What one of the command line leaves is in `test_cli_tune.py`."""

import multiprocessing

import pytest
from optuna.trial import TrialState

from myriad.tuning import tune
from myriad.tuning.study import retried
from tests.child_processes import until
from tests.tuning import small_space


def running(study):
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


@pytest.mark.long
def test_trials_of_killed_processes_are_run_again_by_others(tmp_path):
    ended = []
    killed = []

    def kill_them(study, trial):
        ended.append(trial.number)
        if not killed:
            # Both have as many as fit, so that neither is asking for another one.
            until(lambda: sum(len(each.params) == 3 for each in running(study)) == 4)
            killed.extend(multiprocessing.active_children())
            for each in killed:
                each.kill()

    sizes = {"n_jobs": 2, "n_trials": 8, "num_steps": 20_480}
    made = small_space.settings(tmp_path, **sizes, pruner="none", output=tmp_path)
    with tune(made, [kill_them]) as result:
        trials = result.study.get_trials()
        assert result.num_ended == len({*ended}) == 8
    complete, failed = (
        [trial for trial in trials if trial.state == state]
        for state in (TrialState.COMPLETE, TrialState.FAIL)
    )
    assert len(complete) == 8
    assert failed
    assert len(complete) + len(failed) == len(trials)
    again = {number: trial.params for trial in complete for number in retried([trial])}
    for trial in failed:
        # Parameters that were not drawn yet are drawn when it is run again.
        assert again[trial.number] == again[trial.number] | trial.params
    assert len(killed) == 2
    assert not multiprocessing.active_children()
