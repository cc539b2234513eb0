"""Trials side by side in one program: pruned, refilled, failed alone and judged on fresh seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from myriad.tuning.confirmation import train_again
from myriad.tuning.objective import NUM_EPISODES, Programs, boundaries
from myriad.tuning.space import SearchSpace
from tests.tuning import small_space
from tests.tuning.bowl import run
from tests.tuning.small_space import SPACE

GOOD = {"agent.learning_rate": 1e-3, "agent.num_epochs": 1, "agent.gamma": 0.99}


def campaign(tmp_path, text=SPACE, **fields):
    """Return settings and space of a small campaign."""
    made = small_space.settings(tmp_path, text, **fields).completed()
    return made, SearchSpace.load("ppo", file=made.space)


def run_all(settings, space):
    """Run a campaign; return its trials, and what happened to which in order."""
    events = []

    def heard(happened, training, study):
        number = training.origin.number
        state = study.trials[number].state.name
        events.append((state if happened == "over" else happened, number))

    trials = run(settings, settings.n_trials, on_event=heard, space=space, trainer=Programs)
    return trials, events


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 5_000))
def test_an_evaluation_comes_after_the_first_update_at_or_past_its_step(most, interval, unit):
    interval = min(interval, most)
    found = boundaries(most, interval, unit)
    reported = [step for steps in found.values() for step in steps]
    assert reported == sorted({*range(interval, most + 1, interval), most})
    for update, steps in found.items():
        assert all((update - 1) * unit < step <= update * unit for step in steps)


@pytest.mark.slow
def test_trials_of_one_shape_share_a_program_and_those_that_are_pruned_make_room(tmp_path):
    settings, space = campaign(tmp_path, n_trials=16)
    trials, events = run_all(settings, space)
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    assert pruned
    assert len(done) + len(pruned) == 16
    for trial in trials:
        reported = list(trial.intermediate_values)
        assert reported == [256, 512, 768, 1024, 1280][: len(reported)]
        assert trial.user_attrs["score"]["standard_error"] >= 0
    for trial in done:
        assert trial.value == trial.intermediate_values[1280]
    assert events[:2] == [("compiling", 0), ("ready", 0)]
    assert sum(kind == "compiling" for kind, _ in events) == 1
    # Others began and ended while a trial trained.
    assert any(
        events.index(("ready", trial.number))
        < events.index(("PRUNED", other.number))
        < events.index(("COMPLETE", trial.number))
        for trial in done
        for other in pruned
    )


@pytest.mark.slow
def test_what_fails_a_trial_fails_it_alone_and_says_so(tmp_path):
    text = SPACE.replace("1e-2, log", "1e30, log").replace("high = 0.999", "high = 1.5")
    text += '"agent.activation" = { choices = ["tanh", "wobble"] }\n'
    good = GOOD | {"agent.activation": "tanh"}
    wrong = {
        "NaN or infinity": {"agent.learning_rate": 1e30},
        "gamma must be": {"agent.gamma": 1.4},
        "wobble": {"agent.activation": "wobble"},
    }
    settings, space = campaign(tmp_path, text, pruner="none", n_trials=5)
    known = [good, *(good | values for values in wrong.values()), good | {"agent.gamma": 0.9}]
    trials, events = run_all(settings, space.with_known(known))
    assert [trial.state.name for trial in trials] == ["COMPLETE", *["FAIL"] * 3, "COMPLETE"]
    for says, trial in zip(wrong, trials[1:], strict=False):
        assert says in trial.user_attrs["failure"]
    assert {number for kind, number in events if kind == "failed"} == {1, 2, 3}


@pytest.mark.slow
def test_a_parameter_that_is_not_drawn_has_its_default_and_not_what_others_drew(tmp_path):
    rate = '"agent.learning_rate" = { low = 1e-5, high = '
    text = SPACE.replace(f"{rate}1e-2, log = true }}\n", "")
    text += f'{rate}1e-1, log = true, when = {{ "agent.num_epochs" = 1 }} }}\n'
    settings, space = campaign(tmp_path, text, n_trials=2, pruner="none")
    without = {"agent.num_epochs": 2, "agent.gamma": 0.99}
    values = []
    # The program is made with the values of the trial that comes first.
    for drawn in (1e-5, 1e-1):
        known = [GOOD | {"agent.learning_rate": drawn}, without]
        trials, _ = run_all(settings, space.with_known(known))
        values.append([trial.value for trial in trials])
    (first, same), (second, again) = values
    assert first != second
    assert same == again


@pytest.mark.slow
def test_fresh_seeds_have_episodes_of_their_own(tmp_path):
    settings, space = campaign(tmp_path, num_seeds=2)
    seeds = [settings.seed, settings.seed + 1, settings.seed + 1_000, settings.seed + 1_001]
    again = train_again(Programs(settings, space), {0: space.fields(GOOD)}, seeds)
    returns = np.concatenate([training.returns for training in again[0]])
    assert returns[:2].size >= NUM_EPISODES
    assert len({tuple(of_seed) for of_seed in returns.tolist()}) == 4


@pytest.mark.slow
def test_several_objectives_give_a_front_and_prune_nothing(tmp_path):
    settings, space = campaign(
        tmp_path, n_trials=3, objectives=("return", "train_s", "steps_per_s")
    )
    trials, _ = run_all(settings, space)
    assert len(trials) == 3
    for trial in trials:
        value, train_s, steps_per_s = trial.values
        assert value > 0
        assert train_s > 0
        assert steps_per_s == pytest.approx(1_280 / train_s)


@pytest.mark.slow
def test_a_shape_that_needs_too_much_memory_is_pruned_before_it_trains(tmp_path):
    text = SPACE.replace('"agent.hidden_sizes" = [8]\n', "")
    text += '"agent.hidden_sizes" = { choices = [[8], [512, 512]] }\n'
    settings, space = campaign(tmp_path, text, n_trials=3, pruner="none", max_memory_gib=4 / 1024)
    known = [GOOD | {"agent.hidden_sizes": sizes} for sizes in ([8], [512, 512], [512, 512])]
    known[-1] |= {"agent.gamma": 0.9}
    (small, *large), events = run_all(settings, space.with_known(known))
    assert small.state == TrialState.COMPLETE
    assert small.user_attrs["memory_bytes"] < settings.max_memory_gib * 2**30
    for trial in large:
        assert trial.state == TrialState.PRUNED
        assert trial.user_attrs["memory_bytes"] > settings.max_memory_gib * 2**30
        assert not trial.intermediate_values
        assert trial.constraints["memory_bytes"] > 0
    # Its programs are compiled once, to learn what they need.
    assert len([kind for kind, _ in events if kind == "compiling"]) == 2
