"""System identification: filters against NumPy and an exact posterior, then the tasks."""

import dataclasses
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from myriad import make_key
from myriad.envs.cartpole import CartPoleParams, CartPoleState, accelerations
from myriad.envs.cartpole_sysid import CartPoleSysID
from myriad.envs.gene_circuit import GeneCircuit
from myriad.envs.gene_circuit_sysid import GeneCircuitSysID

CART, CELL = CartPoleSysID(), GeneCircuitSysID()
TWO_HIDDEN = CartPoleSysID(hidden=("half_length", "force"))
BOTH = pytest.mark.parametrize("env", [CART, CELL], ids=["cartpole", "gene-circuit"])
NUM_EPISODES = 2_000
POLICIES = {
    "random": lambda key, time, obs: jax.random.bernoulli(key).astype(jnp.int32),
    "always-0": lambda key, time, obs: jnp.int32(0),
    # Holds the pole upright, as `cartpole-control` would have it.
    "balance": lambda key, time, obs: (obs[2] + 0.3 * obs[3] > 0).astype(jnp.int32),
    # Half a day of light, half a day of dark.
    "day-and-night": lambda key, time, obs: (time < 144).astype(jnp.int32),
}


class Episodes(NamedTuple):
    """`N` episodes of `T` steps: first and last states `[N]`, each step's results `[T, N]`.

    `kept` has the observations, actions and states of the first 64 episodes, `[T, 64]`.
    """

    first_obs: jax.Array
    first: Any
    last: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    kept: Any

    def seen(self, env_index):
        """All that the agent of one environment saw, `[T + 1, O]`, and did, `[T]`."""
        obs, action, _ = self.kept
        return np.concatenate([self.first_obs[None, env_index], obs[:, env_index]]).astype(
            np.float64
        ), action[:, env_index]


@lru_cache
def player(env):
    """Compile whole episodes, one in every environment, under the policy of a given number."""
    params = env.default_params

    def step(carry, inputs):
        obs, state, policy = carry
        key, time = inputs
        act_keys, step_keys = jax.random.split(key, (2, NUM_EPISODES))
        actions = [jax.vmap(act, (0, None, 0))(act_keys, time, obs) for act in POLICIES.values()]
        action = jnp.stack(actions)[policy]
        obs, state, *results, _ = jax.vmap(env.step, (0, 0, 0, None))(
            step_keys, state, action, params
        )
        kept = jax.tree.map(lambda leaf: leaf[:64], (obs, action, state))
        return (obs, state, policy), (*results, kept)

    @jax.jit
    def run(key, policy):
        first = jax.vmap(env.reset, (0, None))(jax.random.split(key, NUM_EPISODES), params)
        inputs = (
            jax.random.split(jax.random.fold_in(key, 1), params.max_steps),
            jnp.arange(params.max_steps),
        )
        (_, last, _), steps = jax.lax.scan(step, (*first, policy), inputs)
        return Episodes(*first, last, *steps)

    return run


@lru_cache
def play(env, policy):
    """Play one whole episode in every environment."""
    return jax.device_get(player(env)(make_key(11), jnp.int32(list(POLICIES).index(policy))))


@lru_cache
def jitted(env):
    """Return `reset` and `step` of one environment, jitted."""
    return jax.jit(env.reset), jax.jit(env.step)


def scores(env, state):
    """Estimates, their deviations and the truth, `[N, hidden]` each."""
    size = len(env.hidden)
    columns = state.posterior.mean[:size], state.posterior.deviations()[:size], state.hidden
    return [np.stack(column, axis=-1).astype(np.float64) for column in columns]


def squared_error(env, state):
    estimate, _, truth = scores(env, state)
    return (estimate - truth) ** 2


# --- the filter -----------------------------------------------------------------------------------


def matrix_filter(mean, covariance, model, values):
    """Cubature-filter in float64: `model(points [2D, D])` gives results and noise `[2D, M]`.

    The law of the results, of which the last `len(values)` are then learned.
    """
    size = len(mean)
    reach = np.sqrt(size) * np.linalg.cholesky(covariance + 1e-14 * np.eye(size))
    results, noise = model(mean + np.concatenate([reach.T, -reach.T]))
    mean = results.mean(axis=0)
    covariance = np.cov(results.T, bias=True) + np.diag(noise.mean(axis=0))
    seen = slice(len(mean) - len(values), None)
    left = slice(None, len(mean) - len(values))
    gain = np.linalg.solve(covariance[seen, seen], covariance[seen, left]).T
    return mean[left] + gain @ (values - mean[seen]), covariance[left, left] - gain @ covariance[
        seen, left
    ]


def newton(cart, force, figures):
    """Solve Newton's two equations of the cart and the pole for their accelerations, `[..., 2]`.

    By Cramer's rule: a general solver takes ten times as long for many systems of two equations.
    """
    _, _, theta, theta_dot = cart
    m, half_length = figures["mass_pole"], figures["half_length"]
    # a x'' + b theta'' = right_1, and c x'' + d theta'' = right_2.
    a = figures["mass_cart"] + m
    b = m * half_length * np.cos(theta)
    c = np.cos(theta)
    d = 4 / 3 * half_length
    right_1 = force + m * half_length * theta_dot**2 * np.sin(theta)
    right_2 = figures["gravity"] * np.sin(theta)
    determinant = a * d - b * c
    numerators = [right_1 * d - b * right_2, a * right_2 - c * right_1]
    return np.stack(numerators, axis=-1) / determinant[..., None]


def figures_at(env, points):
    """Every figure by name, the hidden ones at the scores in the columns of `points`."""
    params = env.default_params
    figures = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    figures |= {name: np.full(points.shape[:-1], figures[name]) for name in figures}
    return figures | {
        name: getattr(params, name) * np.exp(params.spread * points[..., i])
        for i, name in enumerate(env.hidden)
    }


def cart_pole_model(env, seen, action, noise):
    """The filter's model of one step: scores go on as they are, and the accelerations follow."""

    def model(points):
        figures = figures_at(env, points)
        results = newton(seen[:4], figures["force"] * (1 if action == 1 else -1), figures)
        return np.column_stack([points, results]), np.array([[0] * points.shape[1] + list(noise)])

    return model


@pytest.mark.slow
def test_the_cart_poles_estimate_is_the_numpy_filters_of_what_is_seen():
    episodes = play(CART, "random")
    noise = np.array([CART.default_params.x_noise, CART.default_params.theta_noise]) ** 2
    for env_index in range(3):
        seen, action = episodes.seen(env_index)
        mean, covariance = np.zeros(3), np.eye(3)
        for t in range(200):
            for part in (0.1, 0.9):
                model = cart_pole_model(CART, seen[t], action[t], noise / part)
                mean, covariance = matrix_filter(mean, covariance, model, seen[t + 1, 4:6])
            np.testing.assert_allclose(seen[t + 1, 7:10], mean, atol=2e-3)
            np.testing.assert_allclose(seen[t + 1, 10:], np.sqrt(np.diag(covariance)), rtol=2e-3)


def rate_equations(H, F, light, p, minutes=5.0, num_steps=10):
    """Integrate the mean kinetics by Runge and Kutta's fourth-order rule."""

    def slope(x):
        h, f = np.maximum(x, 0)
        by_h, by_f = (
            c**n / (k**n + c**n) for c, k, n in ((h, p["Kh"], p["nh"]), (f, p["Kf"], p["nf"]))
        )
        return np.array(
            [
                p["eta"] * light - p["nu"] * x[0],
                p["rate_h"] * by_h + p["rate_f"] * by_f - p["nu"] * x[1],
            ]
        )

    x, dt = np.array([H, F]), minutes / num_steps
    for _ in range(num_steps):
        k1 = slope(x)
        k2 = slope(x + dt / 2 * k1)
        k3 = slope(x + dt / 2 * k2)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + dt * k3))
    return x


def cell_model(before, light):
    """The filter's model of one interval: scores go on as they are, and H and F follow."""

    def model(points):
        p, H = figures_at(CELL, points[:, :4]), points[:, 4]
        next_h, next_f = rate_equations(H, np.full_like(H, before), light, p)
        stay = np.exp(-2 * p["nu"] * 5.0)
        noise = [next_h - np.maximum(H, 0) * stay, np.maximum(next_f - before * stay, 1.0)]
        results = np.column_stack([points[:, :4], next_h, next_f])
        return results, np.column_stack([np.zeros((len(H), 4)), *noise])

    return model


@pytest.mark.slow
def test_the_cells_estimate_is_the_numpy_filters_of_what_is_seen():
    episodes = play(CELL, "day-and-night")
    for env_index in range(2):
        seen, action = episodes.seen(env_index)
        mean, covariance = np.zeros(5), np.diag([1.0, 1, 1, 1, 0])
        for t in range(len(action)):
            before, after = np.round(80 * seen[t : t + 2, 0])
            mean, covariance = matrix_filter(
                mean, covariance, cell_model(before, action[t]), np.array([after])
            )
            deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
            np.testing.assert_allclose(seen[t + 1, 4:8], mean[:4], atol=1e-2)
            np.testing.assert_allclose(seen[t + 1, 2] * 80, mean[4], atol=0.05)
            np.testing.assert_allclose(seen[t + 1, 8:], deviations[:4], rtol=5e-3)
            np.testing.assert_allclose(seen[t + 1, 3] * 80, deviations[4], atol=0.02)
        np.testing.assert_array_equal(seen[1:, 1], action)
        np.testing.assert_array_equal(
            np.round(80 * seen[1:, 0]), episodes.kept[2].cell.F[:, env_index]
        )


# --- what the agent learns ------------------------------------------------------------------------


@BOTH
def test_the_hidden_figures_come_from_their_priors(env):
    _, first, *_ = play(env, "random")
    for score in first.hidden:
        assert stats.kstest(score, "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(first.hidden) - np.eye(len(env.hidden))).max() < 0.1
    np.testing.assert_array_equal(first.posterior.mean, np.zeros_like(first.posterior.mean))


# Of 2,000 episodes, seen 0.81 (standard error 0.02) and 0.34 (0.01): the share of the priors'
# variance that is removed.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "least"), [(CART, 0.74), (CELL, 0.29)], ids=["cartpole", "gene-circuit"]
)
def test_the_return_is_the_error_that_random_actions_remove(env, least):
    _, first, last, reward, *_ = play(env, "random")
    start, end = squared_error(env, first), squared_error(env, last)
    np.testing.assert_allclose(
        reward.sum(axis=0, dtype=np.float64), (start - end).mean(axis=1), atol=2e-5
    )
    assert start.mean() == pytest.approx(1, abs=0.1)
    assert start.mean() - end.mean() > least
    assert (end.mean(axis=0) < start.mean(axis=0)).all()


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        (CART, "random"),
        (CART, "balance"),
        (TWO_HIDDEN, "random"),
        (CELL, "random"),
        (CELL, "day-and-night"),
    ],
)
def test_ninety_percent_intervals_hold_the_truth_nine_times_in_ten(env, policy):
    # The standard error of a coverage is 0.007.
    _, _, last, *_ = play(env, policy)
    estimate, deviation, truth = scores(env, last)
    coverage = (np.abs(estimate - truth) < stats.norm.ppf(0.95) * deviation).mean(axis=0)
    np.testing.assert_array_less(np.abs(coverage - 0.9), 0.035)
    np.testing.assert_allclose((((estimate - truth) / deviation) ** 2).mean(axis=0), 1, atol=0.2)


def test_a_cell_tells_nothing_in_the_dark():
    _, _, dark, reward, *_ = play(CELL, "always-0")
    assert np.abs(dark.posterior.mean).max() == 0
    assert np.abs(reward).max() == 0


# --- what the agent sees --------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_the_hidden_figures_reach_the_observation_through_the_physics_alone(env):
    # With priors of no width a score changes no figure, so that nothing but the reward may tell it.
    params = dataclasses.replace(env.default_params, spread=0.0)
    reset, step = jitted(env)
    _, state = reset(make_key(0), params)
    other = dataclasses.replace(state, hidden=tuple(-2.0 * score for score in state.hidden))
    for t in range(40):
        key, action = make_key(t), jnp.int32(t % 3 > 0)
        obs, state, *_ = step(key, state, action, params)
        other_obs, other, *_ = step(key, other, action, params)
        np.testing.assert_array_equal(obs, other_obs)


@BOTH
def test_a_first_observation_tells_the_priors_and_not_the_figures(env):
    first_obs, first, *_ = play(env, "random")
    size = len(env.hidden)
    np.testing.assert_array_equal(
        first_obs[:, -2 * size :], [[0.0] * size + [1.0] * size] * NUM_EPISODES
    )
    for column in first_obs[:, : -2 * size].T:
        if column.any():
            assert np.abs(np.corrcoef(column, first.hidden)[0, 1:]).max() < 0.1


def own_figures(env, params, state):
    """The task's `params` with the hidden figures of `state` in place."""
    p = env.default_params
    pairs = zip(env.hidden, state.hidden, strict=True)
    return dataclasses.replace(
        params, **{name: getattr(p, name) * np.exp(p.spread * score) for name, score in pairs}
    )


@pytest.mark.slow
def test_a_measured_acceleration_is_the_physics_and_noise_as_stated():
    episodes = play(CART, "random")
    obs, action, _ = episodes.kept
    before = np.concatenate([episodes.first_obs[None, :64], obs[:-1]])
    first = jax.tree.map(lambda leaf: leaf[:64], episodes.first)
    figures = own_figures(CART, CartPoleParams(), first)
    cart = CartPoleState(*np.moveaxis(before[..., :4], -1, 0), time=0)
    exact = accelerations(cart, np.where(action == 1, figures.force, -figures.force), figures)
    p = CART.default_params
    for measured, clean, noise in zip(
        (obs[..., 4], obs[..., 5]), exact, (p.x_noise, p.theta_noise), strict=True
    ):
        assert stats.kstest(((measured - clean) / noise).ravel(), "norm").pvalue > 1e-3
    # And these accelerations are what moved the pole, where it wasn't set up anew.
    moved = np.abs(obs[..., 3] - before[..., 3] - p.tau * obs[..., 5]) < 1e-5
    assert moved.mean() > 0.92


def test_a_cart_or_pole_beyond_the_limits_is_set_up_within_the_episode():
    episodes = play(CART, "random")
    (obs, _, state), p = episodes.kept, CART.default_params
    assert np.abs(obs[..., 0]).max() <= p.x_threshold
    assert np.abs(obs[..., 2]).max() <= p.theta_threshold
    before = np.concatenate([episodes.first_obs[None, :64], obs[:-1]])
    set_up = np.abs(obs[..., 2] - before[..., 2] - p.tau * before[..., 3]) > 1e-5
    # Random pushes let the pole fall every 20 steps or so, and each time it starts as an episode
    # does.
    assert 0.03 < set_up.mean() < 0.08
    assert np.abs(obs[set_up][:, :4]).max() <= 0.05
    np.testing.assert_array_equal(episodes.first.hidden, episodes.last.hidden)
    np.testing.assert_array_equal(state.cart.time[:, 0], np.arange(1, 501))


@pytest.mark.slow
def test_the_cell_reacts_as_the_control_tasks_does_at_its_own_figures():
    control, p = GeneCircuit(), CELL.default_params
    our_reset, our_step = jitted(CELL)
    _, state = our_reset(make_key(1), p)
    state = dataclasses.replace(
        state, cell=dataclasses.replace(state.cell, H=jnp.int32(80), F=jnp.int32(40))
    )
    figures = own_figures(CELL, control.default_params, state)
    their_step = jax.jit(control.step)
    for seed in range(20):
        _, ours, *_ = our_step(make_key(seed), state, jnp.int32(1), p)
        _, theirs, *_ = their_step(make_key(seed), state.cell, jnp.int32(1), figures)
        assert ours.cell == theirs


# --- the contract ---------------------------------------------------------------------------------


@BOTH
def test_an_episode_is_truncated_at_its_last_step_and_never_terminated(env):
    episodes = play(env, "random")
    assert not episodes.terminated.any()
    assert episodes.truncated[-1].all()
    assert not episodes.truncated[:-1].any()
