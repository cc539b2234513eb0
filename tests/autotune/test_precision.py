"""A narrower dtype is measured once on a machine, and a slower one is never silent."""

import dataclasses

import jax
import pytest

from myriad import create_config, train_and_evaluate
from myriad.agents.minibatches import block_size
from myriad.autotune import precision, profiles
from myriad.autotune.cache import ProfileCache
from myriad.autotune.precision import DtypeSpeed, dtype_speed, warn_if_slower
from myriad.autotune.profiles import record_profiles
from myriad.cli import main
from myriad.errors import InvalidArgumentError, SlowPrecisionWarning
from myriad.hardware import fingerprint


def config_of(agent="ppo", dtype="bfloat16", **options):
    return create_config("cartpole-control", agent, **{"agent.compute_dtype": dtype, **options})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    return ProfileCache()


@pytest.fixture
def slower(monkeypatch):
    found = DtypeSpeed("bfloat16", 128, 1.5, 1.4, 1.6, from_cache=False)
    monkeypatch.setattr(precision, "dtype_speed", lambda config: found)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_a_dtype_is_measured_at_first_and_known_then(agent, cache):
    config = config_of(agent)
    first = dtype_speed(config, cache)
    assert 0 < first.low <= first.ratio <= first.high
    assert (first.dtype, first.rows, first.from_cache) == ("bfloat16", 128, False)
    assert dtype_speed(config, cache) == dataclasses.replace(first, from_cache=True)
    held = cache.get("hardware", fingerprint().slug)
    assert held["devices"] >= 1
    assert [each["dtype"] for each in held["precision"].values()] == ["bfloat16"]


@pytest.mark.slow
def test_a_measurement_is_of_its_dtype_and_network_and_stays_beside_the_machines_profile(cache):
    machine = fingerprint()
    record_profiles(cache, config_of(), machine, lambda line: None)
    before = cache.get("hardware", machine.slug)
    for options in ({}, {"agent.learning_rate": 1e-4}, {"agent.hidden_sizes": (32,)}):
        dtype_speed(config_of(**options), cache)
    after = cache.get("hardware", machine.slug)
    assert len(after["precision"]) == 2
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_devices_that_share_a_gradient_step_take_a_share_of_its_rows_each(cache):
    shape = {"num_envs": 512, "rollout_steps": 64, "agent.num_minibatches": 1}
    config = config_of(**shape)
    devices = config.num_devices
    assert devices == jax.local_device_count() > 1
    assert dtype_speed(config, cache).rows == block_size(512 * 64 // devices)


def test_a_training_that_does_not_fit_is_refused_before_its_dtype_is_measured(cache, monkeypatch):
    monkeypatch.setattr(precision, "compare", None)
    config = config_of("dqn", num_envs=1 << 20, buffer_size=2_000_000_000)
    with pytest.raises(InvalidArgumentError, match=r"need .* of memory, and .* are free"):
        warn_if_slower(config)
    assert not cache.path.exists()


@pytest.mark.parametrize(("agent", "dtype"), [("ppo", "float32"), ("random", None), ("pid", None)])
def test_nothing_is_measured_where_nothing_is_narrower(agent, dtype, cache):
    options = {} if dtype is None else {"agent.compute_dtype": dtype}
    assert dtype_speed(create_config("cartpole-control", agent, **options)) is None
    assert not cache.path.exists()


@pytest.mark.usefixtures("slower", "cache")
def test_a_training_in_a_slower_dtype_warns_with_both_numbers(tmp_path):
    # The warning is an error here, so that it ends the training before it compiles.
    with pytest.raises(SlowPrecisionWarning, match=r"1\.50 .*1\.40 to 1\.6"):
        train_and_evaluate(config_of(), tmp_path / "run", quiet=True)


@pytest.mark.usefixtures("slower")
def test_a_training_that_does_not_compile_is_not_about_speed():
    warn_if_slower(config_of(compile_mode="off"))


def test_only_an_interval_above_one_is_slower():
    assert not DtypeSpeed("bfloat16", 1, 1.2, 0.9, 1.5, from_cache=False).is_slower
    assert DtypeSpeed("bfloat16", 1, 1.2, 1.1, 1.5, from_cache=False).is_slower


def test_the_autotuners_key_names_the_dtype_that_networks_compute_in():
    details = [
        profiles.details(config_of(dtype=dtype), fingerprint()) for dtype in ("float32", "bfloat16")
    ]
    assert [each["dtype"] for each in details] == ["float32", "bfloat16"]
    assert len({profiles.digest(each) for each in details}) == 2


@pytest.mark.slow
def test_the_doctor_shows_the_dtype_its_flag_and_its_speed(cache, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--bf16"]) == 0
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("precision "))
    assert line.split()[1:4] == ["bfloat16", "--bf16", "yes"]
    assert "precision: in bfloat16 a pass of 128 rows" in printed
    assert cache.get("hardware", fingerprint().slug)["precision"]
