"""A learner of your own needs only what learning needs: other members have defaults."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pytest

from myriad import create_config, train_and_evaluate
from myriad.agents import AGENTS, Learner, list_agents, make_learner
from myriad.envs import make_env
from tests.learners import env_of


@dataclasses.dataclass(frozen=True)
class Still(Learner[Any]):
    """Counts its updates. It balances the pole if it is greedy, and else takes the first action."""

    env: Any
    default_num_envs: ClassVar[int] = 4
    metric_names: ClassVar[tuple[str, ...]] = ("pushes",)

    @classmethod
    def create(cls, env):
        return cls(env)

    @property
    def steps_per_update(self):
        return 2

    def init(self, key, num_envs):
        return jnp.zeros((), jnp.int32)

    def update(self, key, state, batch, envs):
        for t in range(2):
            action = self.act(state, key, batch.obs, greedy=False)
            batch, _ = envs.step(jax.random.fold_in(key, t), batch, action)
        return state + 1, batch, {"pushes": jnp.float32(2)}

    def act(self, state, key, obs, *, greedy):
        balances = (obs[:, 2] + obs[:, 3] > 0).astype(jnp.int32)
        return balances if greedy else jnp.zeros(obs.shape[0], jnp.int32)


@pytest.mark.slow
def test_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(AGENTS, "_targets", AGENTS._targets | {"still": Still})
    sizes = {"steps_per_env": 20, "eval_frequency": 10, "eval_rollouts": 2, "eval_max_steps": 40}
    results = train_and_evaluate(create_config("cartpole", "still", **sizes), tmp_path / "run")
    assert int(results.agent_state) == 10
    assert [row["pushes"] for row in results.training] == [2.0, 2.0]
    # Evaluations are greedy, and the collected episodes were not.
    assert [row["return"] for row in results.evaluations] == [40.0, 40.0]
    assert results.training[-1]["return"] < 20


@pytest.mark.parametrize("agent", list_agents())
def test_every_agent_stands_where_the_trainer_expects_a_learner(agent):
    learner = make_learner(agent, make_env(env_of(agent)))
    assert isinstance(learner, Learner)
    learner.require_num_envs(learner.num_envs_multiple)
    learner.require_num_envs(2 * learner.num_envs_multiple)
    assert learner.first_learning_update(8) >= 1
    assert learner.scheduled(7).scheduled(9) == learner.scheduled(7)
