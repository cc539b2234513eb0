"""Trials side by side in one program: pruned, refilled, failed alone, interrupted and repeated."""

import dataclasses
import time

import jax
import numpy as np
import pytest
from optuna.trial import TrialState

from myriad import make_env
from myriad.tuning.campaign import run
from myriad.tuning.conclusion import EnsemblePolicy, train_again
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import disconnect
from myriad.tuning.study import open_study, retried
from tests.tuning import small_space
from tests.tuning.small_space import SPACE

pytestmark = pytest.mark.slow


def campaign(tmp_path, text=SPACE, **fields):
    """Return settings and space of a small campaign."""
    made = small_space.settings(tmp_path, text, **{"n_trials": 6, **fields}).completed()
    return made, SearchSpace.load("ppo", file=made.space)


def run_all(settings, space, on_event=None, **arguments):
    """Run a campaign; return its trials and what was heard of them."""
    events = []

    def hear(event):
        events.append(event)
        if on_event is not None:
            on_event(event, study)

    study = open_study(settings, space)
    try:
        run(study, settings, space, hear, **arguments)
    finally:
        trials = study.get_trials()
        disconnect(study._storage)
    return trials, events


def only(trials, state):
    return [trial for trial in trials if trial.state == state]


def test_a_trial_beside_others_that_are_pruned_and_refilled_equals_the_same_trial_alone(tmp_path):
    settings, space = campaign(tmp_path, n_trials=16, num_seeds=2)
    trials, events = run_all(settings, space)
    done, pruned = only(trials, TrialState.COMPLETE), only(trials, TrialState.PRUNED)
    assert len(done) + len(pruned) == 16
    # Its neighbour was pruned and its slots were filled again while it trained.
    order = [(event.kind, event.trial) for event in events]
    beside = [
        trial
        for trial in done
        for other in pruned
        if order.index(("started", trial.number))
        < order.index(("pruned", other.number))
        < order.index(("completed", trial.number))
    ]
    assert beside
    chosen = beside[-1]
    alone = train_again(
        settings, space, {0: space.fields(chosen.params)}, settings.seeds(), lambda: False
    )
    (training,) = alone.trainings[0]
    assert list(training.score.by_seed) == chosen.user_attrs["by_seed"]
    assert training.score.value == chosen.value
    assert order[:4] == [(kind, 0) for kind in ("asked", "started", "compiling", "compiled")]
    assert sum(event.kind == "compiled" for event in events) == 1


def test_every_evaluation_is_reported_at_a_multiple_of_the_interval(tmp_path):
    settings, space = campaign(tmp_path, n_trials=2, pruner="none")
    trials, _ = run_all(settings, space)
    for trial in trials:
        assert list(trial.intermediate_values) == [256, 512, 768, 1024, 1280]
        assert trial.value == trial.intermediate_values[1280]
        assert trial.user_attrs["standard_error"] >= 0


def test_the_same_seed_gives_the_same_trials(tmp_path):
    settings, space = campaign(tmp_path, n_trials=4)
    first, second = (run_all(settings, space)[0] for _ in range(2))
    assert [trial.params for trial in first] == [trial.params for trial in second]
    assert [trial.value for trial in first] == [trial.value for trial in second]


GOOD = {"agent.learning_rate": 1e-3, "agent.num_epochs": 1, "agent.gamma": 0.99}


@pytest.mark.parametrize(
    ("old", "new", "bad", "says"),
    [
        ("1e-2, log", "1e30, log", {"agent.learning_rate": 1e30}, "NaN or infinity"),
        ("high = 0.999", "high = 1.5", {"agent.gamma": 1.4}, "gamma must be"),
        (
            "[parameters]",
            '[parameters]\n"agent.activation" = { choices = ["tanh", "wobble"] }',
            {"agent.activation": "wobble"},
            "wobble",
        ),
    ],
)
def test_what_fails_a_trial_fails_it_alone_and_says_so(tmp_path, old, new, bad, says):
    settings, space = campaign(tmp_path, SPACE.replace(old, new), pruner="none", n_trials=3)
    good = GOOD | dict.fromkeys(bad.keys() - GOOD, "tanh")
    space = space.with_known([good, good | bad, good | {"agent.gamma": 0.9}])
    trials, events = run_all(settings, space)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert says in trials[1].user_attrs["failure"]
    assert [event.trial for event in events if event.kind == "failed"] == [1]
    alone = train_again(settings, space, {0: space.fields(good)}, settings.seeds(), lambda: False)
    assert alone.trainings[0][0].score.value == trials[0].value


def test_returns_that_are_not_finite_fail_a_trial(tmp_path):
    settings, space = campaign(tmp_path, n_trials=1, pruner="none")
    settings = dataclasses.replace(settings, env="tests.tuning.small_space:Unbounded")
    trials, _ = run_all(settings, space.with_known([GOOD]))
    said = "NaN or infinity in an evaluation at step 256"
    assert [trial.user_attrs["failure"] for trial in trials] == [said]


def test_a_parameter_that_is_not_drawn_has_its_default_and_not_what_others_drew(tmp_path):
    text = (
        SPACE
        + '"agent.value_coef" = { low = 0.1, high = 0.9, when = { "agent.num_epochs" = 1 } }\n'
    )
    settings, space = campaign(tmp_path, text, n_trials=2, pruner="none")
    fields = GOOD | {"agent.num_epochs": 2}
    drawn = GOOD | {"agent.value_coef": 0.9}
    values = {}
    # Whichever comes first makes the program.
    for order in ([fields, drawn], [drawn, fields]):
        trials, _ = run_all(settings, space.with_known(order))
        for trial in trials:
            values.setdefault(trial.params["agent.num_epochs"], []).append(trial.value)
    assert all(first == second for first, second in values.values())


def test_what_a_listener_raises_is_no_fault_of_a_trial(tmp_path):
    settings, space = campaign(tmp_path, n_trials=2, storage=str(tmp_path / "s.db"))

    def hear(event, study):
        if event.kind == "evaluated":
            raise LookupError("a listener of mine")

    with pytest.raises(LookupError, match="a listener of mine"):
        run_all(settings, space, hear)
    trials, _ = run_all(dataclasses.replace(settings, n_trials=0), space)
    assert {trial.state.name for trial in trials} == {"FAIL", "WAITING"}
    assert retried(trials) == {trial.number for trial in only(trials, TrialState.FAIL)}


def test_a_trial_that_another_process_took_is_left_to_it_and_replaced(tmp_path):
    settings, space = campaign(tmp_path, n_trials=2, pruner="none")

    def hear(event, study):
        if event.kind == "started" and event.trial == 0:
            study.tell(0, state=TrialState.FAIL)

    trials, events = run_all(settings, space, hear)
    assert [trial.state.name for trial in trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert [event.trial for event in events if event.kind == "lost"] == [0]


def test_fresh_seeds_have_episodes_of_their_own(tmp_path):
    settings, space = campaign(tmp_path, num_seeds=2)
    seeds = [settings.seed, settings.seed + 1, settings.seed + 1_000, settings.seed + 1_001]
    again = train_again(settings, space, {0: space.fields(GOOD)}, seeds, lambda: False)
    returns = np.concatenate([training.returns for training in again.trainings[0]])
    assert len({tuple(of_seed) for of_seed in returns.tolist()}) == 4


def test_an_interrupt_leaves_no_trial_running_and_its_parameters_are_tried_again(tmp_path):
    settings, space = campaign(tmp_path, storage=f"sqlite:///{tmp_path}/s.db", pruner="none")
    heard = []

    def is_interrupted():
        return heard.count("evaluated") >= 2

    trials, _ = run_all(
        settings, space, lambda event, _: heard.append(event.kind), is_interrupted=is_interrupted
    )
    cut = only(trials, TrialState.FAIL)
    assert cut
    assert not only(trials, TrialState.RUNNING)
    trials, _ = run_all(dataclasses.replace(settings, n_trials=len(cut)), space)
    assert not only(trials, TrialState.WAITING)
    again = [trial.params for trial in trials if retried([trial])]
    assert again == [trial.params for trial in cut]


def test_several_objectives_give_a_front_and_prune_nothing(tmp_path):
    settings, space = campaign(tmp_path, objectives=("return", "train_s", "steps_per_s"))
    trials, _ = run_all(settings, space)
    assert len(trials) == 6
    for trial in trials:
        value, train_s, steps_per_s = trial.values
        assert value > 0
        assert train_s > 0
        assert steps_per_s == pytest.approx(1_280 / train_s)


def test_a_shape_that_needs_too_much_memory_is_pruned_before_it_trains(tmp_path):
    """A network of 512 units needs megabytes, and one of 8 does not."""
    text = SPACE.replace('"agent.hidden_sizes" = [8]\n', "")
    text += '"agent.hidden_sizes" = { choices = [[8], [1024, 1024]] }\n'
    limit_gib = 24 / 1024
    settings, space = campaign(tmp_path, text, n_trials=6, max_memory_gib=limit_gib, seed=3)
    trials, events = run_all(settings, space)
    small, large = [
        [trial for trial in trials if trial.params["agent.hidden_sizes"] == written]
        for written in ("[8]", "[1024, 1024]")
    ]
    assert small
    assert large
    assert all(trial.user_attrs["memory_bytes"] < limit_gib * 2**30 for trial in small)
    for trial in large:
        assert trial.state == TrialState.PRUNED
        assert trial.user_attrs["memory_bytes"] > limit_gib * 2**30
        assert not trial.intermediate_values
        assert trial.constraints["memory_bytes"] > 0
    # Its programs are compiled once, to learn what they need.
    assert len([event for event in events if event.kind == "compiled"]) == 2


def test_no_trial_starts_after_the_timeout_even_if_it_waits(tmp_path, monkeypatch):
    text = SPACE.replace("rollout_steps = 16\n", "")
    text = text.replace("[parameters]\n", "[parameters]\nrollout_steps = { choices = [16, 32] }\n")
    settings, space = campaign(tmp_path, text, n_trials=1_000, timeout=1_000.0, sampler="random")
    started = []

    def hear(event, study):
        if event.kind == "started":
            started.append(event.trial)
        if event.kind == "completed":
            monkeypatch.setattr(time, "monotonic", lambda: 1e12)

    trials, _ = run_all(settings, space, hear)
    assert not only(trials, TrialState.RUNNING)
    waited = {trial.number for trial in only(trials, TrialState.FAIL)} - {*started}
    assert waited
    assert waited <= retried(trials)


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
