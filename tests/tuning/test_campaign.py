"""A whole campaign: trials in processes, the best few again beside the default, and its end."""

import dataclasses
import multiprocessing

import pytest
from optuna.trial import TrialState

from myriad.tuning import tune
from myriad.tuning.confirmation import confirm
from myriad.tuning.report import summary
from myriad.tuning.study import retried
from tests.tuning import small_space
from tests.tuning.test_study import until

pytestmark = pytest.mark.long


def settings(tmp_path, **fields):
    """Return a small campaign."""
    return small_space.settings(
        tmp_path, **{"n_trials": 4, "seed": 5, "output": tmp_path, **fields}
    )


def test_a_campaign_confirms_and_validates_its_best(tmp_path):
    with tune(settings(tmp_path, validate=2)) as result:
        trials = result.study.get_trials()
        # The agent's defaults come first, as far as the space holds them.
        first = trials[0].params
        assert first.pop("agent.num_epochs") in (1, 2, 3)
        assert first == {"agent.learning_rate": 5e-4, "agent.gamma": 0.99}
        numbers = {each.number for each in result.confirmation.candidates}
        assert result.best.number in numbers
        # Five fresh seeds, which no trial trained on.
        assert len(result.confirmation.default.by_seed) == 5
        assert not {*result.confirmation.seeds} & {*result.settings.seeds()}
        assert len(result.validation.by_seed) == 2
        assert result.fields["agent.learning_rate"] == result.best.params["agent.learning_rate"]
        assert result.fields["num_envs"] == 4
        assert not result.is_interrupted
        assert result.num_ended == 4
        assert result.study.user_attrs["best_confirmed"] == result.best.number
        # If all failed when they trained again, the best of the study is named.
        failed = dataclasses.replace(result, confirmation=confirm(None, {}, [1, 2]))
        assert "not confirmed on fresh seeds" in summary(failed, [])


def running(study):
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


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

    made = settings(tmp_path, n_jobs=2, n_trials=8, num_steps=20_480, pruner="none")
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
