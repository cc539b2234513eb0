"""What the compiler is said to have done, held against programs whose answer is known."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, evaluate, make_agent, make_env, xla
from myriad.programs import LearningProgram, TrainingProgram, episode_returns, functions
from myriad.xla import _count_operations, describe, use_compilation_cache

KIB = jnp.zeros(256)  # float32: one KiB


def compiled(fn, *args, **options):
    return jax.jit(fn, **options).lower(*args).compile()


def test_bytes_are_those_of_arguments_and_results_and_a_donated_one_shares_its_room():
    report = describe(compiled(lambda x, y: jnp.concatenate([x, y]), KIB, KIB))
    assert (report.argument_bytes, report.output_bytes, report.alias_bytes) == (2048, 2048, 0)
    assert report.peak_bytes == 4096 + report.temp_bytes
    kept, donated = (
        describe(compiled(lambda x: x + 1, KIB, donate_argnums=names)) for names in ((), (0,))
    )
    assert (kept.alias_bytes, donated.alias_bytes) == (0, 1024)
    assert donated.peak_bytes == kept.peak_bytes - 1024


def test_operations_are_counted_on_every_platform_s_spelling():
    counts = _count_operations("""
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->(f32[8]{0})}

%fused (p.0: f32[8]) -> f32[8] {
  %p.0 = f32[8]{0:T(256)} parameter(0)
  ROOT %copy.1 = f32[8]{0:T(256)} copy(%p.0), metadata={op_name="while(fusion(copy" stack_frame_id=1}
}

ENTRY %main (x: f32[8]) -> (f32[8], s32[]) {
  x = f32[8]{0} parameter(0)
  %fusion.1 = f32[8]{0} fusion(x), kind=kLoop, calls=%fused
  %start = (f32[8]{0:T(256)S(1)}, f32[8]{0}, u32[]{:S(2)}) copy-start(%fusion.1), cross_program_prefetch_index=0
  %done = f32[8]{0} copy-done(%start)
  %while.2 = (s32[], /*index=1*/f32[8]{0}) while(%done), condition=%region_1.2, body=%region_0.1
  %call = () custom-call(%done), custom_call_target="xla_ffi_python_gpu_callback", api_version=API_VERSION_TYPED_FFI
  %send.3 = (f32[8]{0}, u32[], token[]) send(%done, %token), channel_id=2, is_host_transfer=true
  %send-done.3 = token[] send-done(%send.3), channel_id=2, is_host_transfer=true
  ROOT %gemm = (f32[8]{0}, s8[0]{0}) custom-call(%done), custom_call_target="__cublas$gemm"
}
""")
    assert counts == {"instructions": 11, "fusions": 1, "open_loops": 1}


@pytest.fixture
def no_cache():
    """Leave JAX without a compilation cache, and set it as it was afterwards."""
    names = [
        *("jax_compilation_cache_dir", "jax_compilation_cache_max_size"),
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    ]
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("no_cache")
def test_a_cache_whose_folder_cannot_be_made_is_named_and_left_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"are not kept, since .*/file/xla can't be made: Not a"):
        use_compilation_cache(tmp_path / "file" / "xla")
    assert jax.config.values["jax_compilation_cache_dir"] is None


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("variable", "limit", "kept"),
    [(None, -1, 4), (None, 250, 2), (None, 0, 0), ("-1", -1, 6)],
    ids=["2 GB", "a limit of JAX", "none fits", "no limit"],
)
def test_a_cache_keeps_the_programs_used_last_and_every_file_of_others(
    tmp_path, monkeypatch, variable, limit, kept
):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_MAX_SIZE", raising=False)
    if variable is not None:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", variable)
    monkeypatch.setattr(xla, "_CACHE_BYTES", 400)
    jax.config.update("jax_compilation_cache_max_size", limit)
    digit = "0123456789abcdef" * 4
    programs = [tmp_path / f"jit_{number}-{digit}-cache" for number in range(6)]
    others = [tmp_path / name for name in ("npm-cache", f"{digit}-cache.bak", "notes.txt")]
    for age, file in enumerate([*programs, *others]):
        file.write_bytes(bytes(100))
        used = time.time() - 1_000 * age
        os.utime(file, (used, used))
    (tmp_path / f"linked-{digit}-cache").symlink_to(others[0])
    (tmp_path / f"folder-{digit}-cache").mkdir()
    use_compilation_cache(tmp_path)
    assert [file.exists() for file in programs] == [True] * kept + [False] * (6 - kept)
    assert all(file.exists() for file in others)
    assert len(list(tmp_path.iterdir())) == kept + 5


SMALL = {"rollout_steps": 4, "agent.num_minibatches": 2, "agent.hidden_sizes": (8,)}


@pytest.fixture(scope="module")
def program():
    # The random agent compiles the quickest.
    return TrainingProgram(create_config("cartpole-control", "random", 8, 16, 4, eval_frequency=8))


def test_a_training_runs_whole_updates_and_reports_its_bytes(program):
    program.start()
    program.run(10)
    assert int(program.state.num_updates) * program.steps_per_update == 80
    assert (program.updates_per_call, program.scan_chunk_size) == (4, 4)
    assert program.reports[0].argument_bytes > 0


@pytest.mark.slow
def test_gradient_steps_run_alone_as_often_as_they_are_called():
    config = create_config("cartpole-control", "ppo", 8, 64, **SMALL)
    learning = LearningProgram(config)
    for _ in range(2):
        learning.run()
    assert learning.compiled.memory_analysis().argument_size_in_bytes > 0
    assert functions(config, rollout_steps=1).learner.steps_per_update == 1


def test_the_episodes_are_those_of_evaluate():
    env = make_env("cartpole-control")
    config = create_config("cartpole-control", "random", 4, 8)
    returns = episode_returns(env, make_agent("random", env), 16, seed=3)
    np.testing.assert_array_equal(returns, evaluate(config, None, 16, seed=3))
