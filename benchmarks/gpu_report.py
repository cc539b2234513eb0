"""Report the rates of rollouts, trainings and evaluations on this machine's GPU.

    python benchmarks/gpu_report.py                  every program, in under 10 minutes
    python benchmarks/gpu_report.py --only rollout   programs whose name contains this
    python benchmarks/gpu_report.py --only gymnax    rollouts alternated with gymnax, in 2 minutes

`asks` counts the loops whose condition the runtime copies to the host in every pass, because the
compiler doesn't know the number of passes. To see the effect of a change, run the report on both
commits on the same machine.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.harness import handles
from benchmarks.harness.programs import program
from benchmarks.harness.workloads import SuiteError, Workload
from benchmarks.runner import Run, Script, text

_STEPS = 128
ROLLOUTS = {
    "cartpole-control": (1, 1_000, 100_000, 1_000_000, 10_000_000),
    "pendulum-control": (100_000,),
    "snake": (100_000,),
    "bucket-brigade": (100_000,),
    "gene-circuit-control": (100_000,),
}
# Each is alternated with gymnax, and with the loop of kernels that runs what one kernel can't.
COMPARED = {"cartpole-control": "CartPole-v1", "pendulum-control": "Pendulum-v1"}
COMPARED_SIZES = (1_000, 100_000, 1_000_000)
RECORDED = ("cartpole-control", 100_000)
TRAININGS = (
    ("cartpole-control", "ppo", 1_024),
    ("cartpole-control", "ppo", 65_536),
    ("cartpole-control", "pqn", 1_024),
    ("cartpole-control", "pqn", 65_536),
    ("cartpole-control", "dqn", 8),
    ("cartpole-control", "dqn", 1_024),
    ("cartpole-control", "dqn", 65_536),
    ("pendulum-control", "ppo", 4_096),
    ("snake", "ppo", 4_096),
)
EVALUATIONS = (("cartpole-control", "ppo", 1_024),)
_TRAINING_S = 0.5  # number of updates in a timed call


@dataclass(frozen=True)
class MeasuredProgram:
    """One program: its rate over the timed calls with a 95% interval, and its properties."""

    name: str
    num_envs: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    compile_s: float
    temp_bytes: int
    asks: int


def measured() -> Iterator[tuple[str, Callable[[str], MeasuredProgram]]]:
    """Yield each program's name, and a function that takes the name and measures the program."""
    for env, sizes in ROLLOUTS.items():
        for num_envs in sizes:
            yield f"rollout {env}", partial(_rollout, env, num_envs)
    yield f"record {RECORDED[0]}", partial(_recorded, *RECORDED)
    for env, agent, num_envs in TRAININGS:
        yield f"train {agent} {env}", partial(_training, env, agent, num_envs)
    for env, agent, num_envs in EVALUATIONS:
        yield f"evaluate {agent} {env}", partial(_evaluation, env, agent, num_envs)


def _rollout(env_id: str, num_envs: int, name: str) -> MeasuredProgram:
    rollout = program(env_id, "random", num_envs, _STEPS)
    rollout.start()
    timing = _timing(partial(rollout.run, _STEPS))
    return _row(name, num_envs, num_envs * _STEPS, timing, rollout.compile_s, rollout.reports[0])


@dataclass(frozen=True)
class Ratio:
    """How many times as fast a rollout is as another program, with a 95% interval."""

    name: str
    num_envs: int
    steps_per_s: float
    other_steps_per_s: float
    ratio: float
    ratio_low: float
    ratio_high: float


def compared() -> Iterator[tuple[str, Callable[[str], Ratio]]]:
    """Yield the name of each alternated pair, and a function that takes the name and measures."""
    for env, peer_id in COMPARED.items():
        for num_envs in COMPARED_SIZES:
            yield f"{env} to gymnax", partial(_to_gymnax, env, peer_id, num_envs)
            yield f"{env} to a loop of kernels", partial(_to_loop, env, num_envs)


def _to_gymnax(env_id: str, peer_id: str, num_envs: int, name: str) -> Ratio:
    from benchmarks.sides.__main__ import GymnaxEnvs
    from benchmarks.sides.jax_scan import ScanStepper

    chunk = _compared_steps(num_envs)
    workload = Workload("gpu_report", name, env_id, "random", num_envs, chunk, (), ())
    peer = ScanStepper(GymnaxEnvs(peer_id), workload, record=False, seed=0, returns=False)
    return _ratio(name, num_envs, chunk, _runs(env_id, num_envs), partial(peer.run, chunk))


def _to_loop(env_id: str, num_envs: int, name: str) -> Ratio:
    chunk = _compared_steps(num_envs)
    runs = _runs(env_id, num_envs), _runs(env_id, num_envs, loop_reason="the report asked for it")
    return _ratio(name, num_envs, chunk, *runs)


def _compared_steps(num_envs: int) -> int:
    return max(_STEPS, 1_000_000 // num_envs)


def _runs(env_id: str, num_envs: int, **attributes: Any) -> Callable[[], None]:
    """Return a call that runs a chunk of a rollout."""
    import jax

    from myriad import Rollout, make_agent, make_env

    env = make_env(env_id)
    rollout = Rollout(env, make_agent("random", env), num_envs, _compared_steps(num_envs))
    vars(rollout).update(attributes)
    state = rollout.init(0)

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(rollout.run_chunk(state))

    return run


def _ratio(
    name: str, num_envs: int, chunk: int, ours: Callable[[], None], other: Callable[[], None]
) -> Ratio:
    from myriad.timing import compare

    result = compare(ours, other, num_pairs=11, min_sample_s=0.02)
    steps = num_envs * chunk
    return Ratio(
        name,
        num_envs,
        steps / result.a.median_s,
        steps / result.b.median_s,
        result.b_over_a,
        result.b_over_a_low,
        result.b_over_a_high,
    )


def _recorded(env_id: str, num_envs: int, name: str) -> MeasuredProgram:
    import jax

    from myriad import Rollout, make_agent, make_env
    from myriad.xla import describe

    env = make_env(env_id)
    rollout = Rollout(env, make_agent("random", env), num_envs, _STEPS)
    state = rollout.init(0)
    start = time.perf_counter()
    chunk = jax.jit(rollout.record_chunk, donate_argnums=0).lower(state).compile()
    compile_s = time.perf_counter() - start
    timing = _timing(chunk, state, carry=True)
    return _row(name, num_envs, num_envs * _STEPS, timing, compile_s, describe(chunk))


def _training(env_id: str, agent: str, num_envs: int, name: str) -> MeasuredProgram:
    training = _compiled(env_id, agent, num_envs)
    training.run_updates(2, 2)
    start = time.perf_counter()
    training.run_updates(4, 4)
    updates = max(1, round(_TRAINING_S * 4 / (time.perf_counter() - start)))
    timing = _timing(partial(training.run_updates, updates, updates))
    steps = updates * training.steps_per_update
    return _row(name, num_envs, steps, timing, training.compile_s, training.reports[0])


def _evaluation(env_id: str, agent: str, num_envs: int, name: str) -> MeasuredProgram:
    """Measure greedy episodes of an untrained agent, until the last one has ended."""
    training = _compiled(env_id, agent, num_envs, eval_rollouts=num_envs)
    _, _, lengths = training.evaluate()
    steps = int(lengths.max()) * num_envs
    timing = _timing(training.evaluate)
    return _row(name, num_envs, steps, timing, training.compile_s, training.reports[2])


def _compiled(env_id: str, agent: str, num_envs: int, **settings: Any) -> Any:
    from myriad import create_config

    training = handles.TrainingProgram(create_config(env_id, agent, num_envs, **settings))
    training.start()
    return training


def _timing(call: Callable[..., Any], *args: Any, carry: bool = False) -> Any:
    from myriad.timing import measure

    return measure(call, *args, carry=carry, num_samples=7, min_sample_s=0.05)


def _row(
    name: str, num_envs: int, steps: int, timing: Any, compile_s: float, report: Any
) -> MeasuredProgram:
    """Return a program's row, given the number of environment steps in a timed call."""
    return MeasuredProgram(
        name,
        num_envs,
        steps / timing.median_s,
        steps / timing.high_s,
        steps / timing.low_s,
        compile_s,
        report.temp_bytes,
        report.open_loops,
    )


def line(row: MeasuredProgram) -> str:
    """Return a row of the report."""
    spread = f"({row.steps_per_s_low:.3g} to {row.steps_per_s_high:.3g})"
    return (
        f"{row.name:32} {row.num_envs:>10,}  {row.steps_per_s:9.3g} {spread:24} "
        f"{row.compile_s:6.1f} s  {row.temp_bytes / 1e6:8.1f} MB  {row.asks}"
    )


def ratio_line(row: Ratio) -> str:
    """Return a row of the comparisons."""
    times = f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
    return (
        f"{row.name:42} {row.num_envs:>10,}  {row.steps_per_s:9.3g} {row.other_steps_per_s:9.3g}"
        f"  {times}"
    )


def _measure(run: Run) -> bool:
    from myriad import configure
    from myriad.hardware import fingerprint

    os.environ["MYRIAD_COMPILATION_CACHE"] = "off"  # Compiling is measured.
    configure()
    machine = fingerprint()
    if machine.device_kind != "gpu":
        raise SuiteError(
            f"{run.script.path} needs a GPU, but JAX runs on the {machine.device_kind} here: "
            "install JAX for your GPU, as in `pip install 'myriad[gpu]'`."
        )
    print(f"{machine.device_name}, {machine.cores} cores")
    print(f"{'program':32} {'envs':>10}  {'steps/s':34} {'compile':8} {'temporary':12} asks")
    only = run.options.only or ""
    for name, measure_it in measured():
        if only in name:
            row = measure_it(name)
            print(line(row), flush=True)
            run.save(row)
    pairs = [(name, compare_it) for name, compare_it in compared() if only in name]
    if pairs:
        print(f"\n{'rollout':42} {'envs':>10}  {'steps/s':>9} {'other':>9}  times as fast (95%)")
    for name, compare_it in pairs:
        print(ratio_line(compare_it(name)), flush=True)
    return True


SCRIPT = Script(
    "gpu_report",
    __doc__,
    _measure,
    {"--only": text("only programs whose name contains TEXT", metavar="TEXT")},
    writes="program",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
