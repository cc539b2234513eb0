"""The bucket brigade against a plain NumPy one on the same draws, night by night."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, kstest

from myriad import make_key
from myriad.envs.bucket_brigade import (
    BURNING,
    OBSERVED_FIGURES,
    REST,
    RUINED,
    SAFE,
    WORK,
    BucketBrigade,
    BucketBrigadeParams,
    scenarios,
)

# beta, kappa, rho, team_reward, team_penalty, own_reward, own_penalty, cost_to_work, min_nights
TABLE = {
    "default": (0.25, 0.5, 0.02, 100, 100, 20, 40, 0.5, 12),
    "easy": (0.1, 0.8, 0.01, 100, 100, 1, 2, 0.5, 10),
    "hard": (0.4, 0.3, 0.05, 100, 100, 1, 2, 0.5, 15),
    "trivial_cooperation": (0.15, 0.9, 0.0, 100, 100, 1, 2, 0.5, 12),
    "early_containment": (0.35, 0.6, 0.02, 100, 100, 1, 2, 0.5, 12),
    "greedy_neighbor": (0.15, 0.4, 0.02, 100, 100, 1, 2, 1.0, 12),
    "sparse_heroics": (0.1, 0.5, 0.02, 100, 100, 1, 2, 0.8, 20),
    "rest_trap": (0.05, 0.95, 0.02, 100, 100, 1, 2, 0.2, 12),
    "chain_reaction": (0.45, 0.6, 0.03, 100, 100, 1, 2, 0.7, 15),
    "deceptive_calm": (0.25, 0.6, 0.05, 100, 100, 1, 2, 0.4, 20),
    "overcrowding": (0.2, 0.3, 0.02, 50, 100, 1, 2, 0.6, 12),
    "mixed_motivation": (0.3, 0.5, 0.03, 100, 100, 1, 2, 0.6, 15),
}
# Fires are frequent, and every figure differs from every other one.
LIVELY = BucketBrigadeParams(
    0.3, 0.35, 0.15, 90.0, 110.0, 7.0, 11.0, 0.75, 5, 3.0, 2.0, 0.25, 0.375
)


class PlainVillage:
    """The rules in plain Python and float64, for one village."""

    def __init__(self, houses, num_agents: int, params: BucketBrigadeParams, mode: str):
        self.houses, self.params, self.mode = [int(house) for house in houses], params, mode
        self.progress = [0.0] * len(self.houses)
        self.actions = [(0, REST, 0)] * num_agents
        self.night = 0

    def live(self, suppression, ignition, spark, actions) -> list[float]:
        """Live through a night; return all agents' rewards."""
        params, num_houses = self.params, len(self.houses)
        before = list(self.houses)
        self.actions = [tuple(int(x) for x in action) for action in actions]
        for h in range(num_houses):
            if before[h] != BURNING:
                continue
            num_workers = sum(place == h and mode == WORK for place, mode, _ in self.actions)
            if self.mode == "bernoulli":
                out = suppression[h] < 1 - (1 - params.kappa) ** num_workers
                self.houses[h] = SAFE if out else RUINED
            else:
                self.progress[h] += params.suppression_per_worker * num_workers
                if self.progress[h] >= 1:
                    self.houses[h], self.progress[h] = SAFE, 0.0
        burning = [house == BURNING for house in self.houses]
        for h in range(num_houses):
            neighbours = burning[(h - 1) % num_houses] + burning[(h + 1) % num_houses]
            if self.houses[h] == SAFE and ignition[h] < 1 - (1 - params.beta) ** neighbours:
                self.houses[h] = BURNING
        for h in range(num_houses):
            if self.houses[h] == SAFE and spark[h] < params.rho:
                self.houses[h] = BURNING
        self.night += 1
        return [self.reward(agent, before) for agent in range(len(self.actions))]

    def reward(self, agent: int, before: list[int]) -> float:
        params, num_agents, num_houses = self.params, len(self.actions), len(self.houses)
        reward = params.team_reward * self.houses.count(SAFE) / num_houses
        reward -= params.team_penalty * self.houses.count(RUINED) / num_houses
        reward += -params.cost_to_work if self.actions[agent][1] == WORK else params.reward_rest
        for h, (was, now) in enumerate(zip(before, self.houses, strict=True)):
            owns = h % num_agents == agent
            if was != SAFE and now == SAFE:
                reward += params.own_reward if owns else params.other_reward
            if now == RUINED:
                reward -= params.own_penalty if owns else params.other_penalty
        return reward

    def is_over(self) -> bool:
        return self.night >= self.params.min_nights and BURNING not in self.houses

    def script(self, policy: str, agent: int) -> tuple[int, int, int]:
        """Choose as the opponent `policy`, which is not the random one."""
        num_houses, num_agents = len(self.houses), len(self.actions)
        home = agent % num_houses
        fires = [h for h, house in enumerate(self.houses) if house == BURNING]
        if policy == "free-rider":
            return home, REST, 0
        if policy == "hero":
            return min(fires, key=lambda h: self.progress[h], default=home), WORK, 1
        if not fires:
            return home, REST, 0
        place = self.actions[agent][0]
        near = [h for h in fires if h % num_agents == agent] or fires
        way = {h: min((place - h) % num_houses, (h - place) % num_houses) for h in near}
        return min(near, key=way.__getitem__), WORK, 1

    def observation(self, agent: int = 0) -> np.ndarray:
        places, _, signals = zip(*self.actions, strict=True)
        last = [x for place, mode, _ in self.actions for x in (place, mode)]
        figures = [getattr(self.params, name) for name in OBSERVED_FIGURES]
        identity = np.eye(len(self.actions))[agent]
        return np.array([*self.houses, *signals, *places, *last, *figures, *identity], np.float32)


@functools.cache
def batched(env: BucketBrigade):
    return jax.jit(jax.vmap(env.step, (0, 0, 0, None)))


@pytest.mark.parametrize("name", TABLE)
def test_a_scenarios_figures_are_the_published_ones(name):
    params = BucketBrigade(scenario=name).default_params
    assert tuple(getattr(params, figure) for figure in OBSERVED_FIGURES) == TABLE[name]
    others = (params.other_reward, params.other_penalty, params.reward_rest)
    assert (*others, params.suppression_per_worker) == (0, 0, 0.5, 0.5)
    assert scenarios().keys() == TABLE.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "num_houses", "opponents"),
    [
        ("bernoulli", 8, ("firefighter", "hero", "free-rider")),
        ("continuous", 8, ("hero", "firefighter", "firefighter")),
        ("bernoulli", 3, ("hero", "free-rider", "firefighter", "hero")),
    ],
)
def test_steps_equal_the_plain_ones_with_scripted_opponents_and_observation(
    mode, num_houses, opponents
):
    params = dataclasses.replace(LIVELY, rho=0.05, beta=0.1)
    env = BucketBrigade(num_houses, len(opponents), mode, opponents, default_params=params)
    num_villages, num_over, rng = 48, 0, np.random.default_rng(1)
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(make_key(0), num_villages), params)
    num_agents = 1 + len(opponents)
    villages = [
        PlainVillage(houses, num_agents, params, mode) for houses in np.stack(state.houses, axis=1)
    ]
    draw = jax.jit(jax.vmap(env.draw_night))
    for t in range(25):
        keys = jax.random.split(jax.random.fold_in(make_key(1), t), num_villages)
        action = rng.integers(0, [num_houses, 2, 2], (num_villages, 3)).astype(np.int32)
        draws, _ = draw(keys)
        draws = np.stack(
            [np.stack(kind, axis=1) for kind in (draws.suppression, draws.ignition, draws.spark)]
        )
        obs, state, reward, terminated, truncated, info = batched(env)(keys, state, action, params)
        rewards = np.asarray(info["rewards"])
        np.testing.assert_array_equal(reward, rewards[:, 0])
        for i, village in enumerate(villages):
            scripted = [
                village.script(policy, agent) for agent, policy in enumerate(opponents, start=1)
            ]
            expected = village.live(*draws[:, i], [action[i], *scripted])
            np.testing.assert_allclose(rewards[i], expected, rtol=1e-6, atol=2e-5)
            np.testing.assert_array_equal(obs[i], village.observation())
            assert (bool(terminated[i]), bool(truncated[i])) == (village.is_over(), False)
            num_over += village.is_over()
    assert 0 < num_over < 21 * num_villages
    last = jax.tree.map(lambda leaf: leaf[0], state)
    for agent in range(num_agents):
        observed = env.observe(last, params, agent)
        np.testing.assert_array_equal(observed, villages[0].observation(agent))


@pytest.mark.slow
def test_draws_starts_and_random_opponents_are_uniform_and_apart_from_each_other():
    params = dataclasses.replace(LIVELY, rho=0.2)
    env = BucketBrigade(num_houses=5, opponents="random", default_params=params)
    keys = jax.random.split(make_key(0), 20_000)
    draws, _ = jax.jit(jax.vmap(env.draw_night))(keys)
    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    night = np.stack([*draws.suppression, *draws.ignition, *draws.spark])
    assert all(kstest(column, "uniform").pvalue > 0.001 for column in night)
    houses = np.stack(state.houses)
    assert set(np.unique(houses).tolist()) == {SAFE, BURNING}
    assert binomtest(int(houses.sum()), houses.size, 0.2).pvalue > 0.001
    np.testing.assert_array_equal(obs[:, :5], houses.T)
    assert not np.stack([*state.locations, *state.modes, *state.signals, state.night]).any()
    _, after, *_ = batched(env)(keys, state, jnp.zeros((20_000, 3), jnp.int32), params)
    chosen = np.stack(
        [kind[agent] for agent in (1, 2) for kind in (after.locations, after.modes, after.signals)]
    )
    for values, size in zip(chosen, [5, 2, 2] * 2, strict=True):
        assert chisquare(np.bincount(values, minlength=size)).pvalue > 0.001
    for columns in (night, houses, chosen):
        assert np.abs(np.corrcoef(columns) - np.eye(len(columns))).max() < 0.04
