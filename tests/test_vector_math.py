"""Each form against double precision, and a step in these forms against the step as it is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from myriad import Rollout, jit, list_envs, make_agent, make_env, make_key
from myriad.engine.fusion import count_primitives
from myriad.engine.vector_math import FORMS, argmax, vectorized
from myriad.envs.vector import VectorEnv
from tests.bits import assert_alike, assert_same_bits
from tests.generated_env import Generated

TURNS = (np.arange(-6366, 6367) * np.pi / 2).astype(np.float32)
TINY = np.float32(10.0) ** -np.arange(1, 30, dtype=np.float32)
NEAR_TURNS = np.concatenate([TURNS, np.nextafter(TURNS, np.float32(1e9)), TINY, -TINY])
BELOW_1 = np.float32(1) - np.float32(2.0) ** -np.arange(1, 25, dtype=np.float32)


def erf_inv(x):
    size = np.abs(x)
    with np.errstate(divide="ignore"):
        return np.sign(x) * np.where(size < 0.5, special.erfinv(size), special.erfcinv(1 - size))


@pytest.mark.parametrize(
    ("name", "exact", "reach", "extra", "most_ulp"),
    [
        ("sin", np.sin, 10_000, NEAR_TURNS, 2.5),
        ("cos", np.cos, 10_000, NEAR_TURNS, 2.5),
        ("erf_inv", erf_inv, 1, np.concatenate([BELOW_1, -BELOW_1, TINY]), 2),
        ("log1p", np.log1p, 1, np.concatenate([-BELOW_1, TINY, -TINY, 1 / TINY]), 2),
    ],
)
def test_a_form_is_within_units_in_the_last_place(name, exact, reach, extra, most_ulp):
    x = np.random.default_rng(0).uniform(-reach, reach, 1_000_000).astype(np.float32)
    x = np.concatenate([x[np.abs(x) < reach], extra])
    got = np.asarray(jax.jit(FORMS[name])(x)).astype(np.float64)
    expected = exact(x.astype(np.float64))
    ulp = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - expected) / ulp).max() <= most_ulp


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float32, 1), (np.float32, 65), (jnp.bfloat16, 65), (np.uint8, 65), (np.bool_, 65)],
)
def test_the_first_extreme_is_that_of_jax(dtype, size):
    draw = np.random.default_rng(size)
    values = np.array([np.nan, np.inf, -np.inf, 0, 1, 2] if dtype(0.5) == 0.5 else [0, 1, 2])
    x = jnp.asarray(draw.choice(values, (200, size)), dtype)
    for shape in ((200, size), (5, 8, 5, size)):
        for axis in range(len(shape)):
            assert_same_bits(argmax(x.reshape(shape), axis), jnp.argmax(x.reshape(shape), axis))

    def step(keys, x):
        def both(key, row):
            scores = jnp.where(jax.random.bernoulli(key, 0.5, row.shape), row, row[0])
            return jnp.argmax(scores), jnp.argmin(scores), jnp.argmax(row)

        return jax.vmap(both)(keys, x)

    # Only that of the stored numbers is left to XLA.
    keys = jax.random.split(make_key(size), len(x))
    counts = count_primitives(jax.make_jaxpr(vectorized(step))(keys, x).jaxpr)
    assert (counts["argmax"], counts["argmin"]) == (1, 0)
    assert_same_bits(jax.jit(vectorized(step))(keys, x), step(keys, x))


@pytest.mark.parametrize("name", FORMS)
def test_a_form_keeps_special_values_and_great_ones(name):
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 2, -2], np.float32)
    form, own = jax.jit(FORMS[name]), jax.jit(getattr(jax.lax, name))
    np.testing.assert_allclose(form(x), own(x), rtol=3e-7)
    great = np.geomspace(1e-30, 3e38, 1_000_000, dtype=np.float32)
    if name == "tanh":  # It has the same bits.
        assert_same_bits([form(x), form(great)], [own(x), own(great)])
    if name in ("sin", "cos"):
        assert np.abs(form(great)).max() <= 1
        angles = np.linspace(-820_000, 820_000, 1_000_003, dtype=np.float32)
        expected = getattr(np, name)(angles.astype(np.float64))
        assert np.abs(form(angles) - expected).max() <= 2e-7


@jax.custom_vjp
def straight_through(x):
    return jnp.round(jnp.sin(x))


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, slope: (slope,))


@pytest.mark.parametrize("name", [*FORMS, "a rule of its own"])
def test_derivatives_are_those_of_the_operations(name):
    def total(x):
        return getattr(jax.lax, name, straight_through)(x).sum()

    x = jnp.linspace(-0.9, 0.9, 7)
    np.testing.assert_allclose(jax.grad(vectorized(total))(x), jax.grad(total)(x), rtol=1e-6)


# Of keys, and of no comparison that may fall between two roundings.
DRAWN = ("keys of a loop", "key of a branch", "chosen keys", "permutation", "choice", "jump")


@pytest.mark.parametrize("env", [*list_envs(), Generated(DRAWN)])
def test_a_step_is_the_same_up_to_rounding_with_the_setting_off(env, monkeypatch):
    env = make_env(env)
    envs = VectorEnv(env, 64)

    @functools.partial(jax.jit, static_argnums=0)
    def play(setting):
        keys = jax.random.split(make_key(0), 64)
        state = envs.reset(keys)
        action = jax.vmap(env.action_space(env.default_params).sample)(keys)
        return envs.step(state, action, keys, jax.random.split(make_key(1), 64))

    results = []
    for setting in ("on", "off"):
        monkeypatch.setenv("MYRIAD_VECTOR_MATH", setting)
        results.append(play(setting))
    assert_alike(*results, tolerance=2e-5)


@pytest.mark.parametrize(
    ("num_rows", "num_inputs", "num_outputs", "is_loop"),
    [
        *((2, 0, 64, False), (2, 1, 64, True), (2, 7, 64, True)),
        *((1, 7, 64, False), (33, 7, 2, False), (32, 7, 65, False)),
    ],
)
def test_a_small_product_of_rows_is_a_loop(num_rows, num_inputs, num_outputs, is_loop):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, num_inputs), np.float32)
    weights = rng.standard_normal((num_inputs, num_outputs), np.float32)
    exact = x.astype(np.float64) @ weights
    # A network of a learner is called for one row at a time, with a derivative of its own.
    matmul = jax.custom_vjp(jnp.matmul)
    matmul.defvjp(lambda x, y: (x @ y, None), lambda _, gradient: (gradient, gradient))
    by_row = jax.vmap(lambda row: matmul(row[None], weights)[0])
    for layer in (lambda x: x @ weights, by_row):
        product = vectorized(layer)
        traced = jax.make_jaxpr(product)(x)
        assert ("dot_general" not in count_primitives(traced.jaxpr)) == is_loop
        np.testing.assert_allclose(jax.jit(product)(x), exact, rtol=1e-5, atol=1e-5)


def test_a_rollout_uses_the_forms_unless_the_setting_or_the_device_says_no(monkeypatch):
    env = make_env("pendulum-control")

    def operations():
        rollout = Rollout(env, make_agent("random", env), num_envs=64, scan_chunk_size=4)
        return count_primitives(rollout._step_program().jaxpr).keys()

    assert "sin" not in operations()
    monkeypatch.setenv("MYRIAD_VECTOR_MATH", "off")
    assert "sin" in operations()
    monkeypatch.delenv("MYRIAD_VECTOR_MATH")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert vectorized(jnp.sin) is jnp.sin


def test_a_loop_of_ones_own_is_compiled_in_the_forms_and_works_inside_another():
    @jit
    def loop(x):
        return {"x": jax.lax.fori_loop(0, 3, lambda _, x: x + jnp.sin(x), x["x"])}

    def plain(x):
        for _ in range(3):
            x = x + jnp.sin(x)
        return x

    for x in (jnp.linspace(-2, 2, 9), jnp.ones((3, 2))):
        for run in (loop, jax.jit(loop), jax.vmap(loop)):
            np.testing.assert_allclose(run({"x": x})["x"], plain(x), rtol=1e-6)
    traced = jax.make_jaxpr(loop)({"x": jnp.ones(3)})
    assert "sin" not in count_primitives(traced.jaxpr)
