"""The bucket brigade against a plain NumPy one on the same draws, night by night."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from myriad import Rollout, make_agent, make_key
from myriad.envs.bucket_brigade import (
    BURNING,
    OBSERVED_FIGURES,
    POLICIES,
    REST,
    RUINED,
    SAFE,
    WORK,
    BucketBrigade,
    BucketBrigadeParams,
    BucketBrigadeState,
    Uniforms,
    night,
    scenarios,
)
from myriad.errors import InvalidArgumentError, UnknownNameError

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
MODES = ("bernoulli", "continuous")


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
        before, self.actions = (
            list(self.houses),
            [tuple(int(x) for x in action) for action in actions],
        )
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
        home, fires = (
            agent % num_houses,
            [h for h, house in enumerate(self.houses) if house == BURNING],
        )
        if policy == "free-rider":
            return home, REST, 0
        if policy == "hero":
            return min(fires, key=lambda h: self.progress[h], default=home), WORK, 1
        if not fires:
            return home, REST, 0
        place = self.actions[agent][0]
        own = [h for h in fires if h % num_agents == agent]
        return (
            min(
                own or fires, key=lambda h: min((place - h) % num_houses, (h - place) % num_houses)
            ),
            WORK,
            1,
        )

    def observation(self, agent: int = 0) -> np.ndarray:
        places, _, signals = zip(*self.actions, strict=True)
        last = [x for place, mode, _ in self.actions for x in (place, mode)]
        figures = [getattr(self.params, name) for name in OBSERVED_FIGURES]
        identity = np.eye(len(self.actions))[agent]
        return np.array([*self.houses, *signals, *places, *last, *figures, *identity], np.float32)


@functools.cache
def batched(env: BucketBrigade):
    return jax.jit(jax.vmap(env.step, (0, 0, 0, None)))


def make_state(
    houses, num_agents: int = 3, mode: str = "bernoulli", nights: int = 0, locations=None
):
    """Build a state from lists; the agents rest at `locations`, by default at house 0."""
    zero = jnp.zeros((), jnp.int32)
    return BucketBrigadeState(
        houses=tuple(jnp.asarray(house, jnp.int32) for house in houses),
        progress=(jnp.zeros((), jnp.float32),) * (len(houses) if mode == "continuous" else 0),
        locations=tuple(jnp.asarray(place, jnp.int32) for place in locations or [0] * num_agents),
        modes=(zero,) * num_agents,
        signals=(zero,) * num_agents,
        night=jnp.asarray(nights, jnp.int32),
    )


@pytest.mark.parametrize("name", TABLE)
def test_a_scenarios_figures_are_the_published_ones(name):
    params = BucketBrigade(scenario=name).default_params
    columns = [
        "beta",
        "kappa",
        "rho",
        "team_reward",
        "team_penalty",
        "own_reward",
        "own_penalty",
        "cost_to_work",
    ]
    assert [*columns, "min_nights"] == list(OBSERVED_FIGURES)
    assert tuple(getattr(params, figure) for figure in OBSERVED_FIGURES) == TABLE[name]
    assert (
        params.other_reward,
        params.other_penalty,
        params.reward_rest,
        params.suppression_per_worker,
    ) == (
        0,
        0,
        0.5,
        0.5,
    )


def test_there_are_no_other_scenarios():
    assert scenarios().keys() == TABLE.keys()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("num_houses", "num_agents"), [(10, 3), (3, 5), (7, 1)])
def test_nights_equal_the_plain_ones_on_the_same_draws(mode, num_houses, num_agents):
    rng, num_villages = np.random.default_rng(num_houses), 60
    houses = rng.integers(0, 2, (num_houses, num_villages))
    state = make_state(houses, num_agents, mode)
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_villages,)), state)
    villages = [PlainVillage(column, num_agents, LIVELY, mode) for column in houses.T]
    advance = jax.jit(jax.vmap(lambda *args: night(*args, params=LIVELY, mode=mode)))
    seen = set()
    for _ in range(30):
        draws = rng.random((3, num_villages, num_houses), np.float32)
        high = np.array([num_houses, 2, 2])
        actions = rng.integers(0, high, (num_villages, num_agents, 3)).astype(np.int32)
        state, rewards = advance(Uniforms(*draws), state, actions)
        expected = [village.live(*draws[:, i], actions[i]) for i, village in enumerate(villages)]
        np.testing.assert_allclose(np.stack(rewards, axis=1), expected, rtol=1e-6, atol=2e-5)
        np.testing.assert_array_equal(
            np.stack(state.houses, axis=1), [village.houses for village in villages]
        )
        if mode == "continuous":
            np.testing.assert_array_equal(
                np.stack(state.progress, axis=1), [village.progress for village in villages]
            )
        placed = np.stack([state.locations, state.modes, state.signals]).transpose(2, 1, 0)
        np.testing.assert_array_equal(placed, actions)
        seen |= set(np.unique(state.houses).tolist())
    assert seen == ({SAFE, BURNING, RUINED} if mode == "bernoulli" else {SAFE, BURNING})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "opponents"),
    [
        ("bernoulli", ("firefighter", "hero", "free-rider")),
        ("continuous", ("hero", "firefighter", "firefighter")),
    ],
)
def test_steps_equal_the_plain_ones_with_scripted_opponents_and_observation(mode, opponents):
    params = dataclasses.replace(LIVELY, rho=0.05, beta=0.1)
    env = BucketBrigade(8, 3, mode, opponents, default_params=params)
    num_villages, num_over, rng = 48, 0, np.random.default_rng(1)
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(make_key(0), num_villages), params)
    villages = [PlainVillage(houses, 4, params, mode) for houses in np.stack(state.houses, axis=1)]
    draw = jax.jit(jax.vmap(env.draw_night))
    for t in range(25):
        keys = jax.random.split(jax.random.fold_in(make_key(1), t), num_villages)
        action = rng.integers(0, [8, 2, 2], (num_villages, 3)).astype(np.int32)
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_random_opponents_draw_uniformly_and_apart_from_each_other(mode):
    env = BucketBrigade(num_houses=5, mode=mode, opponents="random")
    num = 20_000
    _, state = jax.jit(env.reset)(make_key(0), env.default_params)
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num,)), state)
    keys = jax.random.split(make_key(2), num)
    _, after, *_ = batched(env)(keys, many, jnp.zeros((num, 3), jnp.int32), env.default_params)
    drawn = [
        np.asarray(kind[agent])
        for agent in (1, 2)
        for kind in (after.locations, after.modes, after.signals)
    ]
    for values, size in zip(drawn, [5, 2, 2] * 2, strict=True):
        assert chisquare(np.bincount(values, minlength=size)).pvalue > 0.001
    pairs = np.bincount(drawn[0] * 5 + drawn[3], minlength=25)
    assert chisquare(pairs).pvalue > 0.001


def step_many(env: BucketBrigade, houses, num: int, action, seed: int = 0, **state_options):
    """Step `num` copies of one state under one action; return states and info."""
    state = make_state(houses, env.num_agents, env.mode, **state_options)
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num,)), state)
    actions = jnp.broadcast_to(jnp.array(action, jnp.int32), (num, 3))
    return batched(env)(jax.random.split(make_key(seed), num), many, actions, env.default_params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opponents", "num_workers"), [("free-rider", 1), (("hero", "free-rider"), 2), ("hero", 3)]
)
def test_k_workers_put_a_fire_out_with_probability_one_minus_1_minus_kappa_to_the_k(
    opponents, num_workers
):
    params = dataclasses.replace(LIVELY, rho=0.0)
    env = BucketBrigade(4, 2, "bernoulli", opponents, default_params=params)
    _, state, *_ = step_many(env, [SAFE, BURNING, SAFE, SAFE], 10_000, [1, WORK, 0])
    num_out = int((state.houses[1] == SAFE).sum())
    assert binomtest(num_out, 10_000, 1 - (1 - params.kappa) ** num_workers).pvalue > 0.001
    assert set(np.unique(state.houses[1]).tolist()) == {SAFE, RUINED}


@pytest.mark.slow
def test_fire_spreads_to_safe_neighbours_by_beta_and_starts_by_rho():
    env = BucketBrigade(7, 2, "continuous", "free-rider", default_params=LIVELY)
    _, state, *_ = step_many(
        env, [BURNING, SAFE, BURNING, SAFE, SAFE, SAFE, SAFE], 20_000, [4, REST, 0]
    )
    beta, rho = LIVELY.beta, LIVELY.rho
    caught = [int((house == BURNING).sum()) for house in state.houses]
    assert caught[0] == caught[2] == 20_000  # no burn-out, no rescue
    for house, exposure in {1: 2, 3: 1, 4: 0, 5: 0, 6: 1}.items():
        expected = 1 - (1 - beta) ** exposure * (1 - rho)
        assert binomtest(caught[house], 20_000, expected).pvalue > 0.001, house
    both = np.asarray((state.houses[3] == BURNING) & (state.houses[6] == BURNING)).sum()
    assert binomtest(int(both), 20_000, (1 - (1 - beta) * (1 - rho)) ** 2).pvalue > 0.001


@pytest.mark.slow
def test_a_start_has_fires_by_rho_and_everybody_at_house_0():
    env = BucketBrigade(default_params=dataclasses.replace(LIVELY, rho=0.2))
    obs, state = jax.vmap(env.reset, (0, None))(
        jax.random.split(make_key(3), 5_000), env.default_params
    )
    houses = np.stack(state.houses, axis=1)
    assert set(np.unique(houses).tolist()) == {SAFE, BURNING}
    assert binomtest(int(houses.sum()), houses.size, 0.2).pvalue > 0.001
    assert np.abs(np.corrcoef(houses.T) - np.eye(10)).max() < 0.06
    assert not np.stack([*state.locations, *state.modes, *state.signals, state.night]).any()
    np.testing.assert_array_equal(obs[:, :10], houses)


def one_night(before, draws, actions, params=LIVELY, mode="bernoulli"):
    """Live one night; every draw is the same number. Return the houses and the rewards."""
    uniforms = Uniforms(*(jnp.full(len(before), draw, jnp.float32) for draw in draws))
    state, rewards = night(
        uniforms, make_state(before, len(actions), mode), jnp.array(actions), params, mode
    )
    return [int(house) for house in state.houses], [float(reward) for reward in rewards]


def test_rewards_count_the_safe_and_ruined_shares_and_the_effort():
    houses, rewards = one_night([SAFE, SAFE, RUINED, SAFE], (1, 1, 1), [(0, WORK, 0), (0, REST, 1)])
    team = 90 * 3 / 4 - 110 / 4
    # House 2 is agent 0's.
    assert houses == [SAFE, SAFE, RUINED, SAFE]
    assert rewards == pytest.approx([team - 0.75 - 11, team + 0.25 - 2])


def test_a_house_put_out_pays_its_owner_and_the_others_each_their_reward():
    houses, rewards = one_night([SAFE, BURNING, SAFE], (0, 1, 1), [(1, WORK, 1), (2, REST, 0)])
    assert houses == [SAFE] * 3
    assert rewards == pytest.approx([90 - 0.75 + 3, 90 + 0.25 + 7])


def test_a_house_that_burns_down_costs_its_owner_and_the_others_every_night():
    for before in ([SAFE, BURNING, SAFE], [SAFE, RUINED, SAFE]):
        houses, rewards = one_night(before, (1, 1, 1), [(1, WORK, 1), (2, REST, 0)])
        assert houses == [SAFE, RUINED, SAFE]
        team = 90 * 2 / 3 - 110 / 3
        assert rewards == pytest.approx([team - 0.75 - 2, team + 0.25 - 11])


def test_a_house_put_out_that_catches_fire_again_is_not_rewarded():
    houses, rewards = one_night(
        [BURNING, BURNING, BURNING], (0, 1, 0), [(0, WORK, 1), (0, WORK, 0)]
    )
    assert houses == [BURNING, RUINED, RUINED]
    assert rewards[0] == pytest.approx(-110 * 2 / 3 - 0.75 - 11 - 2)


def test_nothing_ignites_a_neighbour_in_bernoulli_mode():
    houses, _ = one_night([SAFE, BURNING, SAFE], (1, 0, 1), [(0, REST, 0)])
    assert houses == [SAFE, RUINED, SAFE]


def test_continuous_suppression_takes_two_half_measures_and_no_draw():
    params = dataclasses.replace(LIVELY, suppression_per_worker=0.5, beta=0.0, rho=0.0)
    for actions, nights in (([(1, WORK, 0)], 2), ([(1, WORK, 0), (1, WORK, 1)], 1)):
        state = make_state([SAFE, BURNING, SAFE], len(actions), "continuous")
        lived = 0
        while int(state.houses[1]) == BURNING:
            ones = Uniforms(*[jnp.ones(3)] * 3)
            state, _ = night(ones, state, jnp.array(actions), params, "continuous")
            lived += 1
        assert (lived, float(state.progress[1])) == (nights, 0.0)


@pytest.mark.parametrize(
    ("nights", "houses", "over"),
    [
        (3, [SAFE] * 4, False),
        (4, [SAFE] * 4, True),
        (4, [RUINED, SAFE, SAFE, SAFE], True),
        (40, [RUINED, SAFE, SAFE, SAFE], True),
        (4, [BURNING, SAFE, SAFE, SAFE], False),
    ],
)
def test_it_ends_when_nothing_burns_but_not_before_min_nights(nights, houses, over):
    params = dataclasses.replace(LIVELY, rho=0.0, beta=0.0)
    env = BucketBrigade(4, 0, "continuous", default_params=params)
    state = make_state(houses, 1, "continuous", nights)
    _, _, _, terminated, truncated, _ = jax.jit(env.step)(
        make_key(0), state, jnp.zeros(3, jnp.int32), params
    )
    assert (bool(terminated), bool(truncated)) == (over, False)


def scripted(
    policy: str, houses, *, agent: int = 1, locations=None, progress=None
) -> tuple[int, ...]:
    state = make_state(houses, 2, locations=locations)
    if progress:
        state = dataclasses.replace(state, progress=tuple(jnp.float32(done) for done in progress))
    return tuple(int(part) for part in POLICIES[policy]([make_key(0)] * 3, agent, state))


def test_the_firefighter_goes_to_its_own_nearest_fire_then_to_any_then_home():
    fires = [BURNING if house in (2, 3, 7) else SAFE for house in range(8)]
    assert scripted("firefighter", fires, locations=[0, 0]) == (
        7,
        WORK,
        1,
    )  # 7 is its own, and one step away on the ring
    assert scripted("firefighter", fires, locations=[0, 4]) == (3, WORK, 1)
    fires = [BURNING if house in (2, 6) else SAFE for house in range(8)]
    assert scripted("firefighter", fires, locations=[0, 0]) == (
        2,
        WORK,
        1,
    )  # both at distance 2: the lower number
    assert scripted("firefighter", fires, locations=[0, 7]) == (6, WORK, 1)
    assert scripted("firefighter", [SAFE, RUINED, SAFE]) == (1, REST, 0)


def test_the_free_rider_rests_at_home_whatever_burns():
    assert scripted("free-rider", [BURNING] * 4) == (1, REST, 0)


def test_the_hero_works_every_night_at_the_fire_with_least_progress():
    fires = [SAFE, BURNING, BURNING, RUINED]
    assert scripted("hero", fires) == (1, WORK, 1)
    assert scripted("hero", fires, progress=[0.0, 0.5, 0.25, 0.0]) == (2, WORK, 1)
    assert scripted("hero", [SAFE, SAFE, RUINED]) == (1, WORK, 1)


def test_an_observation_names_the_observer():
    env = BucketBrigade(num_houses=4)
    _, state = jax.jit(env.reset)(make_key(0), env.default_params)
    for agent in range(3):
        village = PlainVillage(
            [int(house) for house in state.houses], 3, env.default_params, "bernoulli"
        )
        np.testing.assert_array_equal(
            env.observe(state, env.default_params, agent), village.observation(agent)
        )


@pytest.mark.slow
def test_parameters_may_be_batched():
    env = BucketBrigade(4, 0, default_params=LIVELY)
    params = jax.tree.map(lambda figure: jnp.full(3, figure), LIVELY)
    params = dataclasses.replace(params, cost_to_work=jnp.array([0.0, 1.0, 2.0]))
    keys = jnp.stack([make_key(0)] * 3)
    _, state = jax.vmap(env.reset)(keys, params)
    _, _, reward, *_ = jax.jit(jax.vmap(env.step))(
        keys, state, jnp.full((3, 3), WORK, jnp.int32), params
    )
    np.testing.assert_allclose(np.diff(reward), [-1.0, -1.0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_batched_step_equals_the_single_one(mode):
    env = BucketBrigade(mode=mode, opponents=("random", "firefighter"), default_params=LIVELY)
    rollout = Rollout(env, make_agent("random", env), num_envs=48, scan_chunk_size=7, tile_size=16)
    states = jax.device_get(
        rollout.batch_state(rollout.run(rollout.init(seed=5), num_steps=7)).env_state
    )
    keys = jax.random.split(make_key(6), 48)
    actions = jax.vmap(env.action_space(LIVELY).sample)(keys)
    together = jax.device_get(batched(env)(keys, states, actions, LIVELY))
    single = jax.jit(env.step)
    for i in range(0, 48, 5):
        alone = single(keys[i], jax.tree.map(lambda leaf: leaf[i], states), actions[i], LIVELY)  # noqa: B023  used at once
        batch = jax.tree.map(lambda leaf: leaf[i], together)  # noqa: B023
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), alone, batch)
        jax.tree.map(np.testing.assert_array_equal, alone[1].houses, batch[1].houses)


@pytest.mark.slow
def test_random_play_gives_the_same_bits_for_every_tile():
    env = BucketBrigade()
    agent = make_agent("random", env)
    rollouts = [
        Rollout(env, agent, 100, chunk, tile_size=tile) for chunk, tile in ((40, None), (12, 32))
    ]
    final = [
        rollout.batch_state(rollout.run(rollout.init(seed=0), num_steps=40)) for rollout in rollouts
    ]
    jax.tree.map(np.testing.assert_array_equal, *jax.device_get(final))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opponents", POLICIES)
def test_the_state_keeps_its_shapes_and_types(mode, opponents):
    env = BucketBrigade(mode=mode, opponents=opponents)
    obs, state = jax.eval_shape(env.reset, make_key(0), env.default_params)
    after = jax.eval_shape(
        env.step, make_key(0), state, jnp.zeros(3, jnp.int32), env.default_params
    )
    assert (after[0], after[1]) == (obs, state)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((after, state)))
    assert (after[2].shape, after[2].dtype) == ((), jnp.float32)
    assert (after[3].dtype, after[4].dtype) == (jnp.bool_, jnp.bool_)
    space = env.observation_space(env.default_params)
    assert (space.shape, space.dtype) == (obs.shape, obs.dtype)


@pytest.mark.slow
def test_observations_lie_in_the_declared_space():
    env = BucketBrigade(opponents=("hero", "random"))
    rollout = Rollout(env, make_agent("random", env), num_envs=32, scan_chunk_size=30)
    _, trajectory = rollout.record_chunk(rollout.init(seed=0))
    space = env.observation_space(env.default_params)
    assert np.all(
        (np.asarray(trajectory.obs) >= space.low) & (np.asarray(trajectory.obs) <= space.high)
    )


def test_an_unknown_scenario_is_answered_with_the_closest_one():
    with pytest.raises(
        UnknownNameError, match="unknown scenario 'chain_reacton'; did you mean 'chain_reaction'"
    ):
        BucketBrigade(scenario="chain_reacton")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("mode", "bernouli", "unknown mode 'bernouli'; did you mean 'bernoulli'"),
        ("opponents", "firefigther", "did you mean 'firefighter'"),
        ("opponents", ("hero",), r"opponents must be one name or 2 names"),
        ("opponents", 5, r"opponents must be one name or 2 names"),
        ("num_houses", 2, "num_houses must be an integer from 3 to 100, but got 2"),
        ("num_houses", "x", "num_houses must be an integer from 3 to 100, but got 'x'"),
        ("num_opponents", True, "num_opponents must be an integer from 0 to 100, but got True"),
        ("num_opponents", -1, "num_opponents must be an integer from 0 to 100, but got -1"),
    ],
)
def test_a_wrong_setting_is_one_sentence(field, value, message):
    with pytest.raises(InvalidArgumentError, match=message):
        BucketBrigade(**{field: value})


def test_a_scenario_may_be_given_in_full():
    env = BucketBrigade(default_params=LIVELY)
    assert env.default_params == LIVELY
    harder = dataclasses.replace(BucketBrigade(scenario="hard").default_params, rho=0.2)
    assert (harder.beta, harder.rho) == (0.4, 0.2)
