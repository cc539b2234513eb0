"""`myriad train` keeps the lowered program of its updates, and nothing of a run depends on it."""

import shutil

import numpy as np
import pytest

from myriad import load_agent
from tests.bits import assert_same_bits
from tests.child_processes import python
from tests.training.small import PPO, SIZES, flags_of

pytestmark = pytest.mark.slow


def words(folder, **fields):
    fields = {"env": "cartpole", "agent": "ppo"} | SIZES | PPO | fields
    return ["train", *flags_of(fields), "--quiet", "--run-folder", str(folder)]


def trained(folder, cache, **fields):
    """Train in a process of its own, and return the run folder."""
    run_myriad(cache, *words(folder, **fields))
    return folder


def run_myriad(cache, *arguments):
    python("-m", "myriad", *arguments, MYRIAD_COMPILATION_CACHE=str(cache))


def files(cache):
    return {path.name: path.stat().st_mtime_ns for path in cache.glob("myriad_run-*")}


def assert_same(run, other):
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert_same_bits(load_agent(run)[2].state, load_agent(other)[2].state)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder of programs that the tests share, since the folder is a part of JAX's keys."""
    return tmp_path_factory.mktemp("kept") / "cache"


@pytest.fixture(scope="module")
def first(cache):
    return trained(cache.parent / "first", cache)


def test_a_run_has_the_same_bits_with_a_kept_program_and_without(first, cache, tmp_path):
    written = files(cache)
    assert len(written) == 1
    second = trained(tmp_path / "second", cache)
    assert files(cache) == written  # It was read.
    assert_same(second, first)
    assert_same(trained(tmp_path / "without", "off"), first)
    shutil.rmtree(second / "checkpoints" / "32")
    run_myriad(cache, "train", "--resume", str(second))
    assert files(cache) == written
    assert_same(second, first)


def test_rates_and_seeds_share_a_program(first, cache, tmp_path):
    written = files(cache)
    fields = {"agent.learning_rate": 0.003, "agent.num_epochs": 3, "seed": 5}
    kept = trained(tmp_path / "kept", cache, **fields)
    assert files(cache) == written
    assert_same(kept, trained(tmp_path / "without", "off", **fields))


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:1000], lambda data: data[:999] + bytes([data[999] ^ 1]) + data[1000:]],
    ids=["truncated", "one bit"],
)
def test_a_damaged_program_is_made_again(damage, first, cache, tmp_path):
    (file,) = cache.glob("myriad_run-*")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert_same(trained(tmp_path / "run", cache), first)
    assert len(file.read_bytes()) == len(whole)
    with np.load(file) as again:
        assert again.keys() == {"program", "made"}


@pytest.mark.parametrize(
    ("fields", "environ"),
    [
        ({"env.max_steps": 51}, {}),
        ({}, {"MYRIAD_VECTOR_MATH": "off"}),
        ({}, {"XLA_FLAGS": "", "MYRIAD_WITHOUT_XLA_OPTIONS": "xla_cpu_use_multi_output_fusion"}),
        ({}, {"JAX_DEFAULT_MATMUL_PRECISION": "float32"}),
    ],
    ids=["environment", "vector math", "XLA's options", "precision"],
)
def test_another_program_has_another_file(fields, environ, first, cache, tmp_path, monkeypatch):
    before = files(cache)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    trained(tmp_path / "run", cache, **fields)
    after = files(cache)
    assert len(after) == len(before) + 1
    assert before.items() < after.items()


def test_code_of_yours_is_not_kept(tmp_path):
    trained(tmp_path / "run", tmp_path / "cache", env="myriad.envs.cartpole:CartPole")
    assert any((tmp_path / "cache").glob("*-cache"))
    assert not files(tmp_path / "cache")


def test_another_process_than_the_command_keeps_nothing(tmp_path):
    code = f"from myriad.cli import main; main({words(tmp_path / 'run')!r})"
    python("-c", code, MYRIAD_COMPILATION_CACHE=str(tmp_path / "cache"))
    assert any((tmp_path / "cache").glob("*-cache"))
    assert not files(tmp_path / "cache")


def test_without_flatbuffers_nothing_is_kept(first, tmp_path):
    code = "import sys; sys.modules['flatbuffers'] = None; from myriad.cli import main; main()"
    python("-c", code, *words(tmp_path / "run"), MYRIAD_COMPILATION_CACHE=str(tmp_path / "cache"))
    assert not files(tmp_path / "cache")
    assert_same(tmp_path / "run", first)
