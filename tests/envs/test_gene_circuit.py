"""The gene circuit against the theory of its linear parts, and against a plain NumPy Gillespie."""

import dataclasses
from functools import lru_cache

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
NUM_CELLS = 20_000
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


@lru_cache
def both_simulations():
    ours_h, ours_f = simulate(LIGHT)
    theirs = numpy_gillespie(LIGHT, (12, 120), seed=1)
    return {60: ((ours_h[11], ours_f[11]), theirs[0]), 600: ((ours_h[119], ours_f[119]), theirs[1])}


def bins(ours, theirs, count):
    """Number the cells' bins, cut at quantiles of both samples together."""
    edges = np.unique(
        np.quantile(np.concatenate([ours, theirs]), np.linspace(0, 1, count + 1)[1:-1])
    )
    return np.searchsorted(edges, ours), np.searchsorted(edges, theirs), len(edges) + 1


def chi_square_of_joint(ours, theirs, count=8):
    ours_h, theirs_h, _ = bins(ours[0], theirs[0], count)
    ours_f, theirs_f, num_f = bins(ours[1], theirs[1], count)
    joint_ours, joint_theirs = ours_h * num_f + ours_f, theirs_h * num_f + theirs_f
    size = max(joint_ours.max(), joint_theirs.max()) + 1
    table = np.stack([np.bincount(joint, minlength=size) for joint in (joint_ours, joint_theirs)])
    # Rare bins together: the law of chi-square needs some ten in each.
    common = table.sum(axis=0) >= 20
    table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


def assert_sample_follows(sample, law):
    """Hold mean, variance and the whole distribution of integers to a scipy law."""
    mean, variance, kurtosis = (float(x) for x in law.stats("mvk"))
    size = len(sample)
    assert abs(sample.mean() - mean) < 4 * np.sqrt(variance / size)
    assert abs(sample.var(ddof=1) - variance) < 4 * variance * np.sqrt((kurtosis + 2) / size)
    inner = np.arange(law.ppf(0.002), law.ppf(0.998) + 1)
    observed = np.array(
        [
            (sample < inner[0]).sum(),
            *(np.sum(sample == k) for k in inner),
            (sample > inner[-1]).sum(),
        ]
    )
    expected = size * np.array([law.cdf(inner[0] - 1), *law.pmf(inner), law.sf(inner[-1])])
    likely = expected > 5
    observed, expected = (np.append(x[likely], x[~likely].sum()) for x in (observed, expected))
    keep = expected > 0
    assert (
        stats.chisquare(observed[keep], expected[keep] * (size / expected[keep].sum())).pvalue
        > 1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [60, 600])
def test_the_joint_law_of_both_counts_is_the_numpy_references(minutes):
    ours, theirs = both_simulations()[minutes]
    for statistic in (
        lambda h, f: h,
        lambda h, f: f,
        lambda h, f: h + 2 * f,
        lambda h, f: 2 * f - h,
    ):
        assert stats.ks_2samp(statistic(*ours), statistic(*theirs)).pvalue > 1e-3
    assert chi_square_of_joint(ours, theirs) > 1e-3


@pytest.mark.slow
def test_a_hundred_times_the_reactions_are_all_run():
    # Some 1,000 in an interval: a cap would show as a mean too low.
    params = dataclasses.replace(PARAMS, eta=200.0, nu=1.0, rate_h=0.0, rate_f=0.0)
    counts, _ = simulate(np.ones(4, np.int32), params, seed=6, num_cells=4_000)
    assert_sample_follows(counts[-1], stats.poisson(200 * (1 - np.exp(-20))))


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


@pytest.mark.slow
def test_hill_terms_are_right_to_a_few_units_of_float32():
    counts = np.arange(2000, dtype=np.float32)
    for k, exponent in ((90.0, 3.6), (30.0, 3.6), (1.0, 8.0), (500.0, 0.5)):
        exact = (
            0.5
            * counts.astype(np.float64) ** exponent
            / (k**exponent + counts.astype(np.float64) ** exponent)
        )
        ours = gene_circuit.hill(
            jnp.asarray(counts), 0.5, gene_circuit.log2(jnp.float32(k)), exponent
        )
        np.testing.assert_allclose(ours, exact, rtol=5e-6)
