"""An agent of your own needs only what learning needs, and `check_agent` says what is wrong."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import check_agent, create_config, load_agent, make_env, make_key, register_agent
from myriad import train_and_evaluate as train
from myriad.agents import AGENTS, make_learner
from myriad.errors import AgentWarning, FaultyAgentError, UnknownNameError
from myriad.training.loop import LearningLoop
from tests.learners import DISTINCT, SMALL, env_of
from tests.training.small import Counting


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Forget after a test what it registered."""
    monkeypatch.setattr(AGENTS, "_targets", dict(AGENTS._targets))


def changed(**members):
    """Register an agent that differs in these members."""
    kind = type("Faulty", (Counting,), members)
    register_agent("faulty")(dataclasses.dataclass(frozen=True)(kind))


def update(change):
    """Return an update whose results `change` changes."""
    return {"update": lambda self, *args: change(*Counting.update(self, *args))}


def acts(action):
    """Return an `act` that always returns `action`."""
    return {"act": lambda self, state, key, obs, *, greedy: action}


def used_twice(self, key, state, batch_state, envs):
    for _ in range(2):
        action = self.actions(jax.random.split(key, 8))
        batch_state, _ = envs.step(jax.random.fold_in(key, 1), batch_state, action)
    return {"updates": state["updates"] + 1}, batch_state, {"loss": jnp.float32(0)}


def to_host(self, key, state, batch_state, envs):
    return {"updates": jnp.float32(0)}, batch_state, {"loss": float(state["updates"])}


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (
            update(lambda state, *rest: ({"updates": jnp.int32(0)}, *rest)),
            "state.updates is float32 of shape () after init, but int32 of shape () after update",
        ),
        (update(lambda state, *rest: (state["updates"], *rest)), "a state of the same structure"),
        (update(lambda state, batch_state, _: (state, batch_state)), "but returns a tuple of 2"),
        (update(lambda *rest: (*rest[:2], {"los": rest[2]["loss"]})), "loss, but has los"),
        (update(lambda *rest: (*rest[:2], {"loss": jnp.zeros(2)})), "metric loss must be a scalar"),
        ({"update": to_host}, "update raises ConcretizationTypeError in"),
        ({"update": used_twice}, "update raises KeyReuseError: "),
        ({"steps_per_update": 3}, "update takes 2 steps of each environment"),
        (acts(jnp.zeros((), jnp.int32)), "must return actions of int32 and shape (8,)"),
        (acts(jnp.full(8, 2, jnp.int32)), "returns actions out of Discrete(n=2): the first is 2"),
        (
            update(lambda state, *rest: ({"updates": state["updates"] / 0}, *rest)),
            "NaN or infinity in the agent's state after 4 updates",
        ),
    ],
)
def test_a_fault_of_an_agent_is_said(members, sentence):
    changed(**members)
    with pytest.raises(FaultyAgentError) as caught:
        check_agent("faulty")
    assert sentence in " ".join(caught.value.faults)


def test_what_trains_all_the_same_is_a_warning():
    changed(**update(lambda state, *rest: ({"updates": jnp.float32(0)}, *rest)))
    with pytest.warns(AgentWarning, match="nothing in the state changed in 5 updates"):
        check_agent("faulty")
    with pytest.raises(UnknownNameError, match="did you mean 'faulty'"):
        check_agent("fauty")
    changed(init=lambda self, key, num_envs: {"updates": jnp.asarray(0.0)})
    with pytest.warns(AgentWarning, match="state.updates of init is of a weak type"):
        check_agent("faulty")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DISTINCT if name != "pqn"])  # its example
def test_learners_pass(name):
    check_agent(name, env_of(name), **SMALL[name])


@pytest.mark.slow
def test_an_agent_of_your_own_trains_and_quietly(tmp_path, capsys):
    register_agent("counting")(Counting)
    sizes = {"steps_per_env": 20, "eval_frequency": 10, "eval_rollouts": 2, "eval_max_steps": 40}
    config = create_config("cartpole", "counting", **sizes)
    results = train(config, tmp_path / "run", quiet=True)
    assert capsys.readouterr().err == ""
    assert int(results.agent_state["updates"]) == 10
    assert [row["loss"] for row in results.training] == [2.0, 2.0]
    # Evaluations are greedy, and the collected episodes were not.
    assert [row["return"] for row in results.evaluations] == [40.0, 40.0]
    assert results.training[-1]["return"] < 20
    # Of equal evaluations, the first is the best.
    kept = [load_agent(results.run_folder, best=best)[2].state for best in (True, False)]
    assert [state["updates"] for state in kept] == [5, 10]


@pytest.mark.parametrize(("episodes", "is_exact"), [(2**22 - 1, True), (2**22, False)])
def test_a_sum_of_more_returns_than_float32_adds_up_is_nan(episodes, is_exact):
    learner = make_learner("random", make_env("cartpole-control", max_steps=1), 2)
    loop = LearningLoop(learner.env, learner, 2)
    state = jax.jit(loop.init)(make_key(0))
    batch_state = dataclasses.replace(state.batch_state, num_episodes=jnp.array([0, episodes]))
    state = dataclasses.replace(state, batch_state=batch_state)
    _, report = jax.jit(loop.run)(state, np.int32(1), np.bool_(0))
    assert bool(jnp.isfinite(report.return_sum)) == is_exact
    assert not report.is_bad.any()
