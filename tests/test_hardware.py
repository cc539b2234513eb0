"""The machine as files describe it, and XLA's options as a fresh process meets them."""

import json
import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import Rollout, host, make_agent, make_env
from myriad.engine import machine
from myriad.engine.fusion import emits_more_than, output_fusion
from myriad.xla import describe
from tests.bits import assert_same_bits
from tests.child_processes import python

GIB = 2**30
NAME = "xla_cpu_prefer_vector_width"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def in_a_fresh_process(script, **variables):
    """Return what a script leaves in `found`, in a process without XLA's options."""
    prelude = "import json, os, jax\nfrom myriad import configure\n"
    without = dict.fromkeys(("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORM_NAME"))
    given = without | {"JAX_PLATFORMS": "cpu"} | variables
    return json.loads(python("-c", f"{prelude}{script}\nprint(json.dumps(found))", **given).stdout)


def test_the_fingerprint_is_of_this_machine():
    found = machine.fingerprint()
    assert found.device_kind == jax.default_backend() == machine.resolve_platform()
    assert found.device_name
    assert 1 <= found.cores <= os.cpu_count()
    assert 0 < found.memory_available_bytes <= found.memory_total_bytes
    assert found.slug.endswith(f"_{round(found.memory_total_bytes / GIB)}GB")


MODEL = "model\t\t: 17\nmodel name\t: AMD EPYC 7B13\nflags\t\t: fpu avx2 avx512f sha_ni"
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB"
JOB = {"proc/self/cgroup": "0::/work/job"}
V1 = {"proc/self/cgroup": "5:memory:/host/path/container\n3:cpuset:/\n2:cpu,cpuacct:/\n0::/"}


def limits(group, prefix, **values):
    """Return the files of a control group by their paths."""
    return group | {f"sys/fs/cgroup/{prefix}.{name}": str(each) for name, each in values.items()}


OWN, CPU, V1_CPU, V1_OWN = "work/job/memory", "work/job/cpu", "cpu,cpuacct/cpu", "memory/memory"
PARENT = {"max": 4 * GIB, "current": 3 * GIB, "stat": f"anon 5\nfile 7\ninactive_file {GIB}"}
READ_TWICE = f"inactive_file {GIB}\nactive_file {4 * GIB}\nfile_mapped {GIB}"
SEEN = f"inactive_file 7\ntotal_inactive_file {GIB // 2}"  # in a container


@pytest.mark.parametrize(
    ("files", "total_gib", "available_gib"),
    [
        ({}, 16, 8),
        (limits(JOB, OWN, max="max") | limits(JOB, "work/memory", **PARENT), 4, 2),
        (limits(JOB, OWN, max=8 * GIB, current=7 * GIB, stat=READ_TWICE), 8, 5),
        (limits(JOB, OWN, max=GIB, current=2 * GIB), 1, 0),
        (limits(V1, V1_OWN, limit_in_bytes=2 * GIB, usage_in_bytes=GIB, stat=SEEN), 2, 1.5),
        (limits(V1, V1_OWN, limit_in_bytes=2**63 - 4096, usage_in_bytes=GIB), 16, 8),
    ],
    ids=["none", "a parent's", "files", "over the limit", "version 1", "version 1, unlimited"],
)
def test_memory_is_what_the_container_may_take(files, total_gib, available_gib, tmp_path):
    write(tmp_path, {"proc/meminfo": MEMINFO} | files)
    assert host.host_memory(tmp_path) == (total_gib * GIB, available_gib * GIB)


def test_the_model_and_the_cores_within_the_quota_are_read_from_linux(tmp_path):
    allowed = host.usable_cores(tmp_path)
    for files, most in (
        ({"proc/cpuinfo": MODEL}, 1000),
        (limits(JOB, CPU, max="190000 100000"), 1),
        (limits(V1, V1_CPU, cfs_quota_us=-1, cfs_period_us=100_000), 1000),
        (limits(V1, V1_CPU, cfs_quota_us=100_000, cfs_period_us=100_000), 1),
    ):
        assert machine.usable_cores(write(tmp_path, files)) == min(allowed, most)
    assert host.cpu_name(tmp_path) == "AMD EPYC 7B13"
    assert host.has_512_bit_vectors(tmp_path)
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\nflags\t\t: fpu avx2"})
    assert not host.has_512_bit_vectors(tmp_path)
    assert host.cpu_name(tmp_path)


@pytest.mark.parametrize(
    ("platform", "stats", "share", "memory"),
    [
        ("gpu", {"bytes_limit": 18 * GIB, "bytes_in_use": GIB}, None, (24 * GIB, 17 * GIB)),
        ("gpu", {"bytes_limit": 12 * GIB}, ".5", (24 * GIB, 12 * GIB)),
        ("tpu", {"bytes_limit": 32 * GIB}, None, (32 * GIB, 32 * GIB)),
    ],
)
def test_a_gpu_s_own_memory_is_found_behind_the_share_that_jax_takes(
    platform, stats, share, memory, monkeypatch
):
    device = SimpleNamespace(platform=platform, device_kind="A", memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    if share:
        monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", share)
    found = machine.fingerprint()
    assert (found.memory_total_bytes, found.memory_available_bytes) == memory


def configured(arguments="", **variables):
    """Return the devices and options of `configure` in a fresh process, and XLA_FLAGS after it."""
    script = f"""
answer = configure({arguments})
assert len(jax.devices()) == answer.cpu_devices
found = [answer.cpu_devices, dict(answer.applied), os.environ.get("XLA_FLAGS", "")]"""
    return in_a_fresh_process(script, **variables)


@pytest.mark.slow
def test_configure_sets_all_options_and_as_many_devices_as_cores():
    devices, applied, flags = configured()
    assert devices == machine.usable_cores()
    applied.pop("jax_num_cpu_devices", None)  # on one core there is nothing to set
    wide = set() if host.has_512_bit_vectors() else {NAME}
    assert applied.keys() == machine.XLA_CPU_OPTIONS.keys() - wide
    assert all(f"{name}={value}" in flags for name, value in applied.items())


@pytest.mark.slow
def test_options_and_numbers_of_devices_that_the_user_gave_are_left_alone():
    extra, fusion = "--xla_backend_extra_options=", "xla_cpu_use_multi_output_fusion"
    threshold = "xla_cpu_small_while_loop_byte_threshold=77"
    given = f"--xla_cpu_prefer_vector_width=128 {extra}{threshold},xla_llvm_ir_gemm=1"
    found = configured("cpu_devices=1", XLA_FLAGS=given, JAX_NUM_CPU_DEVICES="3")
    skipped = "--xla_disable_hlo_passes=cpu_multi_output_fusion"
    assert found == [3, {fusion: "true"}, f"{given} {extra}{fusion}=true {skipped}"]
    flag = "--xla_force_host_platform_device_count=2"
    assert configured("xla_options=False", XLA_FLAGS=flag) == [2, {}, flag]


def test_outputs_are_fused_in_programs_that_are_asked_for_alone():
    def body(_, carry):
        return jnp.sin(carry[0]) + carry[1], jnp.cos(carry[1]) * carry[0]

    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 9, body, (x, x))).trace(jnp.ones(99))
    paint = jax.jit(lambda i: jnp.zeros(9).at[i].set(1.0)).trace(jnp.int32(3))
    options = output_fusion(lambda: loop.jaxpr)
    plain, fused = (describe(loop.lower().compile(each)).fusions for each in (None, options))
    assert fused < plain
    assert output_fusion(lambda: paint.jaxpr) == {}

    def of_jax_0_11(x):
        slope = jax.vmap(jax.grad(jnp.tanh))(x)
        return jnp.where(jnp.tile(x, 2) <= 1, jnp.tile(slope, 2), jnp.searchsorted(x, 0.5))

    known = jax.jit(of_jax_0_11).trace(jnp.ones(9))
    assert output_fusion(lambda: known.jaxpr) == options != {}
    known.lower().compile(options)
    # A loop that carries vectors isn't.
    vectors = jax.jit(lambda x: jax.lax.fori_loop(0, 3, body, (x, x))).trace(jnp.ones((9, 4)))
    assert output_fusion(lambda: loop.jaxpr, 0) == output_fusion(lambda: vectors.jaxpr, 1) != {}
    assert output_fusion(lambda: vectors.jaxpr, 0) == {}


def stacked(x):
    """Integrate two masses on a spring by a stage that splits and stacks the state."""
    left, right, *speeds = (x[:, i] for i in range(4))
    return x + 0.01 * jnp.stack([*speeds, right - left, left - right], axis=1)


@pytest.mark.parametrize(
    ("stage", "grows"),
    [
        (stacked, True),
        (lambda x: x + jnp.tanh(x[:, np.array([1, 2, 3, 0])]), True),
        (lambda x: x + jnp.tanh(x), False),
    ],
)
def test_outputs_stay_apart_where_xla_would_write_a_stage_for_each_of_its_readers(stage, grows):
    def step(x):
        for _ in range(16):
            x = stage(x)
        return x

    traced = jax.make_jaxpr(step)(jnp.zeros((64, 4)))
    assert emits_more_than(2**16, traced.jaxpr) == grows
    if stage is stacked:  # XLA would write it for a minute.
        assert output_fusion(lambda: traced) == {"xla_backend_extra_options": ""}


@pytest.mark.slow
def test_a_rollout_whose_outputs_are_fused_can_be_part_of_a_program():
    env = make_env("cartpole-control")
    rollout = Rollout(env, make_agent("random", env), 64, scan_chunk_size=4, num_devices=1)
    alone = rollout.run_chunk(rollout.init(0)).batch_state
    inside = jax.jit(lambda state: rollout.run_chunk(state))(rollout.init(0))  # noqa: PLW0108 (it is compiled)
    several = jax.vmap(rollout.run_chunk)(jax.tree.map(lambda leaf: leaf[None], rollout.init(0)))
    assert_same_bits(inside.batch_state, alone)
    assert_same_bits(jax.tree.map(lambda leaf: leaf[0], several.batch_state), alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected", "says"),
    [
        (  # A later call may change what an earlier one set.
            f"""
found = [configure(3, without=["{NAME}"]).cpu_devices, configure(2).cpu_devices]
found += [configure().cpu_devices, os.environ["MYRIAD_WITHOUT_XLA_OPTIONS"], len(jax.devices())]
found.append(configure() == configure(2) == configure(2, xla_options=False))
late = 4""",
            [3, 2, 2, NAME, 2, True],
            "jax_num_cpu_devices can no longer be set",
        ),
        (
            """
jax.devices()
found = [configure(1, xla_options=False).applied]
late = 1""",
            [{}],
            "configure must be called before JAX makes its first array",
        ),
    ],
)
def test_after_the_start_options_come_too_late_and_nothing_is_touched(script, expected, says):
    late = """
before = os.environ.get("XLA_FLAGS"), jax.config.jax_num_cpu_devices
try: configure(late)
except RuntimeError as error: found += [type(error).__name__, str(error)]
found.append(before == (os.environ.get("XLA_FLAGS"), jax.config.jax_num_cpu_devices))"""
    *found, name, sentence, is_untouched = in_a_fresh_process(script + late)
    assert (found, name, is_untouched) == (expected, "BackendStartedError", True)
    assert says in sentence
