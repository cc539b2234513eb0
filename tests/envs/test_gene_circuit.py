"""The gene circuit against the theory of its linear parts, and against a plain NumPy Gillespie."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from myriad import make_key
from myriad.envs import gene_circuit
from myriad.envs.gene_circuit import GeneCircuit, GeneCircuitState, draw_params

ENV = GeneCircuit()
PARAMS = ENV.default_params
NUM_CELLS = 10_000
# Light by interval, the same for every cell: an hour on, then two intervals in three, so that both
# states are visited.
LIGHT = np.array([t < 12 or t % 3 < 2 for t in range(120)], np.int32)


def simulate(light, params=PARAMS, seed=0, H=0, F=0, num_cells=NUM_CELLS):
    """Run our cells under one light schedule, `[T]`; return counts, `[T, num_cells]` each."""
    start = GeneCircuitState(*(jnp.full(num_cells, count, jnp.int32) for count in (H, F, 0)))
    counts = run_cells(make_key(seed), start, jnp.asarray(light, jnp.int32), params)
    return [np.asarray(each) for each in counts]


@jax.jit
def run_cells(key, state, light, params):
    def interval(state, inputs):
        key, light = inputs
        keys = jax.random.split(key, state.H.size)
        state = jax.vmap(ENV.step, (0, 0, None, None))(keys, state, light, params)[1]
        return state, (state.H, state.F)

    return jax.lax.scan(interval, state, (jax.random.split(key, len(light)), light))[1]


def numpy_gillespie(light_by_interval, at_intervals, seed, p=PARAMS, num_cells=NUM_CELLS):
    """Simulate all cells in float64; return the counts at the given ends."""
    rng = np.random.default_rng(seed)
    H, F, t = (np.zeros(num_cells) for _ in range(3))
    found = []
    for end, light in enumerate(light_by_interval, start=1):
        if end not in at_intervals and light == light_by_interval[end]:
            continue
        while (active := np.flatnonzero(t < end * p.interval)).size:
            h, f = H[active], F[active]
            rates = np.stack(
                [
                    np.full(h.shape, p.eta * light),
                    p.nu * h,
                    p.rate_h * h**p.nh / (p.Kh**p.nh + h**p.nh),
                    p.rate_f * f**p.nf / (p.Kf**p.nf + f**p.nf),
                    p.nu * f,
                ]
            )
            total = rates.sum(axis=0)
            with np.errstate(divide="ignore"):
                after = t[active] + rng.exponential(size=h.shape) / total
            reaction = (rng.random(h.shape) * total >= np.cumsum(rates, axis=0)).sum(axis=0)
            happens = after < end * p.interval
            H[active] += happens * np.array([1, -1, 0, 0, 0, 0])[reaction]
            F[active] += happens * np.array([0, 0, 1, 1, -1, 0])[reaction]
            t[active] = np.minimum(after, end * p.interval)
        if end in at_intervals:
            found.append((H.copy(), F.copy()))
    return found


@pytest.mark.slow
def test_the_joint_law_of_both_counts_is_the_numpy_references():
    counts = simulate(LIGHT)
    after = (12, 120)
    for num_intervals, theirs in zip(after, numpy_gillespie(LIGHT, after, seed=1), strict=True):
        ours = [each[num_intervals - 1] for each in counts]
        for h, f in ((1, 0), (0, 1), (1, 2), (-1, 2)):  # together they tell two joint laws apart
            found, expected = (h * of_h + f * of_f for of_h, of_f in (ours, theirs))
            assert stats.ks_2samp(found, expected).pvalue > 1e-3


@pytest.mark.slow
def test_a_hundred_times_the_reactions_are_all_run():
    # Some 1,000 in an interval: a cap would show as a mean too low.
    params = dataclasses.replace(PARAMS, eta=200.0, nu=1.0, rate_h=0.0, rate_f=0.0)
    counts, _ = simulate(np.ones(4, np.int32), params, seed=6, num_cells=4_000)
    # The theory of a birth and death: a Poisson distribution of mean 200.
    assert abs(counts[-1].mean() - 200) < 4 * np.sqrt(200 / 4_000)
    assert abs(counts[-1].var() - 200) < 4 * 200 * np.sqrt(2 / 4_000)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "n_horizon"), [("constant", 0), ("sine", 3)])
def test_observation_and_reward_follow_the_target(target, n_horizon):
    env = GeneCircuit(target=target, n_horizon=n_horizon)
    minutes = 5.0 * np.arange(300)
    targets = (
        np.full(300, 25.0) if target == "constant" else 30 + 20 * np.sin(2 * np.pi * minutes / 600)
    )
    obs, state = jax.jit(env.reset)(make_key(0), PARAMS)
    np.testing.assert_allclose(obs, np.array([0, *targets[: n_horizon + 1]]) / 80, rtol=1e-5)
    step = jax.jit(env.step)
    for t in range(288):
        obs, state, reward, terminated, truncated, info = step(
            jax.random.key(t), state, jnp.int32(t % 2), PARAMS
        )
        expected = np.array([state.F, *targets[t + 1 : t + 2 + n_horizon]]) / 80
        np.testing.assert_allclose(obs, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reward, -abs(int(state.F) - targets[t]), rtol=1e-5, atol=1e-4)
        assert (bool(terminated), bool(truncated), info) == (False, t == 287, {})
    assert int(state.time) == 288
    assert env.observation_space(PARAMS).shape == obs.shape


@pytest.mark.slow
def test_every_figure_may_be_drawn_per_cell():
    keys = jax.random.split(make_key(8), 5_000)
    params = jax.vmap(lambda key: draw_params(key, spread=0.2))(keys)
    np.testing.assert_allclose(np.median(params.nu), PARAMS.nu, rtol=0.02)
    np.testing.assert_allclose(np.std(np.log(params.Kf)), 0.2, rtol=0.05)
    assert abs(np.corrcoef(np.log(params.Kf), np.log(params.nu))[0, 1]) < 0.05


@pytest.mark.slow
def test_the_waiting_times_are_unit_exponentials():
    words = jax.random.bits(make_key(9), (200_000,))
    waits = np.asarray(gene_circuit._exponential(words), np.float64)
    assert stats.kstest(waits, "expon").pvalue > 1e-3
    exact = -np.log((np.asarray(words, np.float64) + 0.5) / 2**32)
    np.testing.assert_allclose(waits, exact, rtol=1e-6, atol=1e-7)
    assert np.isfinite(gene_circuit._exponential(jnp.array([0, 2**32 - 1], jnp.uint32))).all()
