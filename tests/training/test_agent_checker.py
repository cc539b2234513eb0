"""`check_agent` passes every agent of Myriad, and says what is wrong with one of yours."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from myriad import check_agent, register_agent
from myriad.agents import AGENTS
from myriad.errors import AgentWarning, FaultyAgentError, UnknownNameError
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
        (
            update(lambda *rest: (*rest[:2], {"los": rest[2]["loss"]})),
            "loss, but has los",
        ),
        (update(lambda *rest: (*rest[:2], {"loss": jnp.zeros(2)})), "metric loss must be a scalar"),
        ({"update": to_host}, "update raises ConcretizationTypeError in"),
        ({"update": used_twice}, "update uses one random key for several draws"),
        (
            {"steps_per_update": 3},
            "update takes 2 steps of each environment",
        ),
        (
            {"act": lambda self, state, key, obs, *, greedy: jnp.zeros((), jnp.int32)},
            "act with greedy=True must return actions of int32 and shape (8,)",
        ),
        (
            {"act": lambda self, state, key, obs, *, greedy: jnp.full(8, 2, jnp.int32)},
            "act with greedy=True returns actions out of Discrete(n=2): the first is 2",
        ),
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DISTINCT if name != "pqn"])  # its example
def test_learners_pass(name):
    check_agent(name, env_of(name), **SMALL[name])
