"""The autotuner's file survives many writers at once, and is for this machine only."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import pytest
from filelock import FileLock

from myriad import create_config
from myriad.autotune import cache as cache_module
from myriad.autotune import tuner
from myriad.autotune.cache import SECTIONS, ProfileCache
from myriad.engine.machine import Hardware
from myriad.errors import InvalidArgumentError
from myriad.training.config import make_config

ANSWER = {
    "optimal_chunk_size": 16,
    "throughput_steps_per_s": 2e6,
    "throughput_low": 1.9e6,
    "throughput_high": 2.1e6,
    "memory_bytes": 1 << 20,
    "validated_at": "2026-01-01T00:00:00Z",
    "candidates": {},
    "stretch_steps": 1024,
    "rounds_s": {"16": "0.011 0.012", "32": "0.013 0.012"},
}
MACHINE = Hardware("cpu", "AMD EPYC", 2, 24 << 30, 20 << 30)
WRITER = """
import sys
from pathlib import Path
from myriad.autotune.cache import ProfileCache

path, first = sys.argv[1:]
print("ready", flush=True)
input()
for number in range(int(first), int(first) + 10):
    entry = {"padding": "." * 50_000}
    ProfileCache(Path(path)).update("agent_profiles", str(number), entry)
"""


@pytest.fixture
def cache(tmp_path):
    return ProfileCache(tmp_path / "home" / "autotune_profiles.json")


@pytest.mark.slow
def test_processes_write_at_once_and_a_reader_sees_valid_json_at_every_moment(cache):
    sizes, command, pipe = [], [sys.executable, "-c", WRITER, cache.path], subprocess.PIPE
    writers = [
        subprocess.Popen([*command, first], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        for first in ("0", "10")
    ]
    for each in writers:
        assert each.stdout.readline() == "ready\n"
    for each in writers:
        each.stdin.write("\n")
    while any(each.poll() is None for each in writers):
        if cache.path.exists():
            sizes.append(len(json.loads(cache.path.read_text())["agent_profiles"]))
    assert [each.wait() for each in writers] == [0] * 2
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 1
    assert cache.read()["agent_profiles"].keys() == {str(number) for number in range(20)}
    for each in writers:
        each.communicate()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b'{"precious": 1}', b'{"schema_version": 1, "har'],
)
@pytest.mark.parametrize("use", [ProfileCache.read, ProfileCache.clear, ProfileCache.table])
def test_a_file_that_is_no_cache_is_refused_and_kept(use, content, cache):
    cache.path.parent.mkdir()
    cache.path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match="is not an autotune cache; remove it"):
        use(cache)
    with pytest.warns(UserWarning, match="what is found is not kept"):
        cache.update("hardware", "new", {"cores": 1})
    assert cache.path.read_bytes() == content
    beyond = ProfileCache(cache.path / "autotune_profiles.json")
    with pytest.warns(UserWarning, match=rf"{beyond.path} can't be written"):
        beyond.update("hardware", "new", {})
    with pytest.raises(InvalidArgumentError, match=rf"{beyond.path} can't be read"):
        use(beyond)


def test_what_another_version_kept_counts_as_missing_and_clear_forgets_all(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "moved"))
    cache, file = ProfileCache(), tmp_path / "moved" / "autotune_profiles.json"
    for count in (1, 2):
        cache.update("hardware", "old", {"count": count})
    assert cache.get("hardware", "old") == {"count": 2}
    text = file.read_text()
    assert len(text.splitlines()) > 5  # people can read it
    file.write_text(text.replace('"schema_version": 1', '"schema_version": 0'))
    assert cache.get("hardware", "old") is None
    cache.update("hardware", "new", {"cores": 1})
    assert set(cache.read()["hardware"]) == {"new"}
    assert json.loads(file.read_text()).keys() == {"schema_version", *SECTIONS}
    for _ in range(2):
        cache.clear()
    assert cache.get("hardware", "new") is None


@pytest.mark.parametrize("wrong", [1, ANSWER, ANSWER | {"checksum": "00000000"}], ids=str)
def test_an_entry_that_is_not_ours_counts_as_missing_and_is_replaced(wrong, cache):
    cache.update("chunk_size_configs", "whole", ANSWER)
    content = json.loads(cache.path.read_text())
    content["chunk_size_configs"]["wrong"] = wrong
    cache.path.write_text(json.dumps(content))
    assert cache.get("chunk_size_configs", "wrong") is None
    assert cache.get("chunk_size_configs", "whole") == ANSWER
    assert "1 answers" in cache.table()
    cache.update("chunk_size_configs", "wrong", ANSWER)
    assert cache.get("chunk_size_configs", "wrong") == ANSWER


def test_a_lock_that_is_held_is_waited_for_and_then_gone_without(cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_LOCK_WAIT_S", 0.2)
    cache.update("hardware", "before", {"cores": 2})
    with FileLock(cache.path.with_name(f".{cache.path.name}.lock")):
        locked = "is locked by another process"
        with pytest.warns(UserWarning, match=f"{locked}.* is not kept"):
            cache.update("hardware", "one", {"cores": 3})
        cache.update("hardware", "two", {"cores": 3})  # warns and waits once only
        assert cache.read()["hardware"] == {"before": {"cores": 2}}
        with pytest.raises(InvalidArgumentError, match=locked):
            cache.clear()


def dqn(**fields):
    shape = {"env": "cartpole", "agent": "dqn", "num_envs": 4, "buffer_size": 512}
    shape |= {"eval_frequency": 64, "steps_per_env": 1024}
    return create_config(**(shape | fields))


def key_of(config, machine=MACHINE):
    return tuner.key_of(config, machine)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"env": "gene-circuit"},
        {"agent": "pqn", "buffer_size": None},
        {"num_envs": 8},
        {"buffer_size": 1024},
        {"batch_size": 32},
        {"env.gravity": 3.7},
        {"env.max_steps": 100},
        {"agent.hidden_sizes": [32, 32]},
    ],
    ids=str,
)
def test_an_answer_is_for_this_configuration_only(change):
    assert key_of(dqn(**change)) != key_of(dqn())


def test_an_answer_holds_whatever_does_not_change_the_speed():
    changed = {"seed": 1, "total_steps": 10**6, "eval_frequency": 128, "scan_chunk_size": 7}
    changed |= {"target_return": 475.0, "checkpoint_every_s": 1.0, "steps_per_env": None}
    changed |= {"log_to": ["tensorboard"], "agent.exploration_steps": 99}
    busier = dataclasses.replace(MACHINE, memory_available_bytes=1 << 30)
    of_tuner = make_config("cartpole", "dqn", 4, tuner.STEPS_PER_ENV, buffer_size=512)
    for config, machine in ((dqn(**changed), MACHINE), (dqn(), busier), (of_tuner, MACHINE)):
        assert key_of(config, machine) == key_of(dqn())


def test_an_answer_is_for_this_machine_and_these_devices_versions_and_options_only(monkeypatch):
    config = dqn()
    changes = [{}, {"device_kind": "gpu"}, {"device_name": "AMD EPYC 2"}, {"cores": 4}]
    found = [key_of(config, dataclasses.replace(MACHINE, **change)) for change in changes]
    assert found[0].startswith("cartpole:dqn:4:AMD-EPYC_24GB:configured:")
    versions = tuner.package_versions()
    changed = [versions | {package: "99.0"} for package in ("myriad", "jax", "jaxlib")]
    for owner, name, result in [
        (jax, "local_device_count", 7),
        *((tuner, "package_versions", each) for each in changed),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda result=result: result)
            found.append(key_of(config))
    with jax.enable_x64(True):  # noqa: FBT003 (JAX's own signature)
        found.append(key_of(config))
    with jax.default_matmul_precision("highest"):
        found.append(key_of(config))
    for flags in (f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_fast_math=true", ""):
        monkeypatch.setenv("XLA_FLAGS", flags)
        found.append(key_of(config))
    assert ":unconfigured:" in found[-1]
    assert len(set(found)) == len(found)
