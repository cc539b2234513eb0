"""Trials side by side in one program: pruned, refilled, failed alone and judged on fresh seeds."""

import dataclasses

import jax
import numpy as np
import pytest
from optuna.trial import TrialState

from myriad import make_env
from myriad.tuning.campaign import run
from myriad.tuning.conclusion import EnsemblePolicy, train_again
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import disconnect
from myriad.tuning.study import open_study
from tests.tuning import small_space
from tests.tuning.small_space import SPACE

pytestmark = pytest.mark.slow
GOOD = {"agent.learning_rate": 1e-3, "agent.num_epochs": 1, "agent.gamma": 0.99}


def campaign(tmp_path, text=SPACE, **fields):
    """Return settings and space of a small campaign."""
    made = small_space.settings(tmp_path, text, **fields).completed()
    return made, SearchSpace.load("ppo", file=made.space)


def run_all(settings, space):
    """Run a campaign; return its trials and what was heard of them."""
    events = []
    study = open_study(settings, space)
    try:
        run(study, settings, space, events.append)
        return study.get_trials(), events
    finally:
        disconnect(study._storage)


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
        assert trial.user_attrs["standard_error"] >= 0
    for trial in done:
        assert trial.value == trial.intermediate_values[1280]
    order = [(event.kind, event.trial) for event in events]
    assert order[:4] == [(kind, 0) for kind in ("asked", "started", "compiling", "compiled")]
    assert sum(event.kind == "compiled" for event in events) == 1
    # Others began and ended while a trial trained.
    assert any(
        order.index(("started", trial.number))
        < order.index(("pruned", other.number))
        < order.index(("completed", trial.number))
        for trial in done
        for other in pruned
    )


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
    assert {event.trial for event in events if event.kind == "failed"} == {1, 2, 3}


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


def test_fresh_seeds_have_episodes_of_their_own(tmp_path):
    settings, space = campaign(tmp_path, num_seeds=2)
    seeds = [settings.seed, settings.seed + 1, settings.seed + 1_000, settings.seed + 1_001]
    again = train_again(settings, space, {0: space.fields(GOOD)}, seeds, lambda: False)
    returns = np.concatenate([training.returns for training in again.trainings[0]])
    assert len({tuple(of_seed) for of_seed in returns.tolist()}) == 4


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


def test_a_shape_that_needs_too_much_memory_is_pruned_before_it_trains(tmp_path):
    text = SPACE.replace('"agent.hidden_sizes" = [8]\n', "")
    text += '"agent.hidden_sizes" = { choices = [[8], [512, 512]] }\n'
    settings, space = campaign(tmp_path, text, n_trials=3, pruner="none", max_memory_gib=4 / 1024)
    known = [GOOD | {"agent.hidden_sizes": sizes} for sizes in ("[8]", *["[512, 512]"] * 2)]
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
    assert len([event for event in events if event.kind == "compiled"]) == 2


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A policy whose actions are its state."""

    def act(self, state, key, obs, *, greedy):
        return state


def together(env, *actions):
    policy = EnsemblePolicy(make_env(env), (Fixed(),) * len(actions))
    states = tuple(map(np.asarray, actions))
    return np.asarray(policy.act(states, jax.random.key(0), None, greedy=True))


def test_an_ensemble_takes_the_mean_in_a_box_and_elsewhere_a_vote_in_doubt_that_of_the_best():
    mean = together("pendulum", np.array([[1.0]]), np.array([[2.0]]))
    assert mean.tolist() == [[1.5]]
    votes = together("cartpole-control", [0, 1, 1], [1, 1, 0], [1, 0, 0])
    assert votes.tolist() == [1, 1, 0]
    assert together("cartpole-control", [1, 0], [0, 1]).tolist() == [1, 0]
    several = together("bucket-brigade", [[3, 1, 0]], [[3, 0, 1]], [[7, 0, 1]])
    assert several.tolist() == [[3, 0, 1]]
