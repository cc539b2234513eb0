"""Each library that the tests' Python can run, for real and tiny, steps the right environment."""

import importlib
import json
import re
from dataclasses import asdict, replace
from functools import partial

import jax
import numpy as np
import pytest

from benchmarks.harness.alternation import Outcome
from benchmarks.harness.plausibility import as_declared, check_sanity
from benchmarks.harness.registry import library_of
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import load
from benchmarks.libraries import __main__ as libraries
from benchmarks.libraries.server import replies_to
from myriad.errors import MyriadError


def measured(library, env, num_envs, num_steps, agent="random"):
    """Ask a library for two calls, and hold it to its check from the first hundred episodes on.

    It answers in this process, without importing JAX and it anew.
    """
    workload = Workload("comparison", "tiny", env, agent, num_envs, num_steps, (), num_steps)
    case = as_declared(Case(library, workload))
    prepare = {"do": "prepare", "case": asdict(case), "min_call_s": 0.0}
    _, prepared, first, second, stats = replies_to(
        map(json.dumps, [prepare, {"do": "call"}, {"do": "call"}, {"do": "stats"}]),
        partial(libraries.hello, library),
        partial(libraries.make_stepper, library_of(library)),
    )
    assert min(first["seconds"], second["seconds"]) > 0
    outcome = Outcome(case, prepared=prepared, stats=stats)
    check = load().sanity_check_of(workload)
    check_sanity(outcome, check and replace(check, num_episodes=100, tolerance=4 * check.tolerance))
    return outcome


@pytest.mark.parametrize(
    ("library", "env", "num_envs", "num_steps"),
    [
        ("myriad-plain", "pendulum-control", 256, 200),
        pytest.param("gymnax", "pendulum-control", 256, 200, marks=pytest.mark.slow),
        ("myriad-plain", "gene-circuit-control", 64, 288),
        pytest.param("gymnasium", "cartpole-control", 1, 3_000, marks=pytest.mark.slow),
        pytest.param("gymnasium-vector", "cartpole-control", 8, 400, marks=pytest.mark.slow),
        ("gymnax", "examples.my_environment:HillCar", 64, 200),
    ],
)
def test_a_library_steps_the_environment_that_the_sanity_check_knows(
    library, env, num_envs, num_steps
):
    if library == "gymnax":
        pytest.importorskip("gymnax")
    outcome = measured(library, env, num_envs, num_steps)
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert outcome.prepared["num_steps"] == num_steps
    assert outcome.stats["num_episodes"] >= 100


@pytest.mark.slow
def test_a_network_is_the_same_policy_in_every_library():
    pytest.importorskip("gymnax")
    ours, theirs = (
        measured(library, "cartpole-control", 256, 100, agent="mlp-64-64")
        for library in ("myriad-plain", "gymnax")
    )
    assert (ours.status, theirs.status) == ("ok", "ok")
    lengths = [outcome.stats["mean_episode_length"] for outcome in (ours, theirs)]
    assert lengths[0] == pytest.approx(lengths[1], abs=0.5)


@pytest.mark.parametrize(
    ("library", "env", "changes", "reason"),
    [
        ("gymnax", "snake", {}, "libraries.toml gives no name of snake in envs of [gymnax]"),
        ("gymnasium-sync", "snake", {}, "no name of snake in envs of [gymnasium-sync]"),
        ("gymnasium", "cartpole-control", {}, "a loop over one environment, not 4"),
        ("gymnasium-async", "cartpole-control", {"num_envs": 17}, "would need as many processes"),
        ("gymnasium-sync", "cartpole-control", {"agent": "mlp-64-64"}, "only random actions are"),
        ("myriad-plain", "pendulum-control", {"agent": "mlp-64-64"}, "choose among a few actions"),
        ("myriad-plain", "examples.my_environment:Nothing", {}, "Nothing"),
        ("myriad-plain", "no_such_module:Env", {}, "no_such_module"),
    ],
)
def test_what_a_library_does_not_measure_it_refuses_in_a_sentence(library, env, changes, reason):
    if library == "gymnax":
        pytest.importorskip("gymnax")
    with pytest.raises((MyriadError, NotImplementedError), match=re.escape(reason)):
        measured(library, env, **{"num_envs": 4, "num_steps": 4} | changes)


def test_the_users_environment_is_the_same_in_gymnax():
    pytest.importorskip("gymnax")
    ours = importlib.import_module("examples.my_environment")
    theirs = importlib.import_module("examples.my_environment_gymnax")
    env, other = ours.HillCar(), theirs.HillCar()
    rng = np.random.default_rng(0)
    numbers = {
        "position": rng.uniform(-1.2, 0.6, 1_000).astype(np.float32),
        "velocity": rng.uniform(-0.07, 0.07, 1_000).astype(np.float32),
        "time": rng.integers(0, 200, 1_000),
    }
    keys = jax.random.split(jax.random.key(0), 1_000)
    start, _ = jax.vmap(env.reset, (0, None))(keys, env.default_params)
    other_start, _ = jax.vmap(other.reset_env, (0, None))(keys, other.default_params)
    np.testing.assert_allclose(start, other_start)
    actions = rng.integers(0, 3, 1_000)
    obs, _, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
        keys, ours.CarState(**numbers), actions, env.default_params
    )
    other_obs, state, *expected, _ = jax.vmap(other.step_env, (0, 0, 0, None))(
        keys, theirs.CarState(**numbers), actions, other.default_params
    )
    np.testing.assert_allclose(obs, other_obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal([reward, terminated], expected)
    over = terminated | other.is_truncated(state, other.default_params)
    np.testing.assert_array_equal(terminated | truncated, over)
    assert terminated.any()
    assert truncated.any()
