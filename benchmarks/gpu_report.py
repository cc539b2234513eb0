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

from benchmarks.harness.libraries import SuiteError, env_id_of
from benchmarks.harness.programs import program
from benchmarks.harness.workload import Case, Workload
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
COMPARED = ("cartpole-control", "pendulum-control")
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

    def __str__(self) -> str:
        spread = f"({self.steps_per_s_low:.3g} to {self.steps_per_s_high:.3g})"
        return (
            f"{self.name:32} {self.num_envs:>10,}  {self.steps_per_s:9.3g} {spread:24} "
            f"{self.compile_s:6.1f} s  {self.temp_bytes / 1e6:8.1f} MB  {self.asks}"
        )


@dataclass(frozen=True)
class ReadyProgram:
    """A program that was compiled and warmed up.

    Attributes:
        call: runs it, and waits for the device.
        num_steps: the steps of all environments in a call.
        compile_s: the seconds that it took to compile.
        report: the compiler's statements about it.
    """

    call: Callable[[], Any]
    num_steps: int
    compile_s: float
    report: Any

    def measured(self, name: str, num_envs: int) -> MeasuredProgram:
        """Time its calls."""
        from myriad.timing import measure

        timing = measure(self.call, num_samples=7, min_sample_s=0.05)
        return MeasuredProgram(
            name,
            num_envs,
            self.num_steps / timing.median_s,
            self.num_steps / timing.high_s,
            self.num_steps / timing.low_s,
            self.compile_s,
            self.report.temp_bytes,
            self.report.open_loops,
        )


def programs() -> Iterator[tuple[str, int, Callable[[], ReadyProgram]]]:
    """Yield each program's name and number of environments, and a function that compiles it."""
    for env, sizes in ROLLOUTS.items():
        for num_envs in sizes:
            yield f"rollout {env}", num_envs, partial(_rollout, env, num_envs)
    yield f"record {RECORDED[0]}", RECORDED[1], partial(_recorded, *RECORDED)
    for env, agent, num_envs in TRAININGS:
        yield f"train {agent} {env}", num_envs, partial(_training, env, agent, num_envs)
    for env, agent, num_envs in EVALUATIONS:
        yield f"evaluate {agent} {env}", num_envs, partial(_evaluation, env, agent, num_envs)


def _rollout(env_id: str, num_envs: int) -> ReadyProgram:
    rollout = program(env_id, "random", num_envs, _STEPS)
    rollout.start()
    call = partial(rollout.run, _STEPS)
    return ReadyProgram(call, num_envs * _STEPS, rollout.compile_s, rollout.reports[0])


def _recorded(env_id: str, num_envs: int) -> ReadyProgram:
    import jax

    from myriad import Rollout, make_agent, make_env
    from myriad.xla import describe

    env = make_env(env_id)
    rollout = Rollout(env, make_agent("random", env), num_envs, _STEPS)
    state = rollout.init(0)
    start = time.perf_counter()
    chunk = jax.jit(rollout.record_chunk, donate_argnums=0).lower(state).compile()
    compile_s = time.perf_counter() - start

    def call() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(chunk(state))

    return ReadyProgram(call, num_envs * _STEPS, compile_s, describe(chunk))


def _training(env_id: str, agent: str, num_envs: int) -> ReadyProgram:
    training = _compiled(env_id, agent, num_envs)
    training.run_updates(2, 2)
    start = time.perf_counter()
    training.run_updates(4, 4)
    updates = max(1, round(_TRAINING_S * 4 / (time.perf_counter() - start)))
    call = partial(training.run_updates, updates, updates)
    num_steps = updates * training.steps_per_update
    return ReadyProgram(call, num_steps, training.compile_s, training.reports[0])


def _evaluation(env_id: str, agent: str, num_envs: int) -> ReadyProgram:
    """Play greedy episodes of an untrained agent, until the last one has ended."""
    training = _compiled(env_id, agent, num_envs, eval_rollouts=num_envs)
    _, _, lengths = training.evaluate()
    num_steps = int(lengths.max()) * num_envs
    return ReadyProgram(training.evaluate, num_steps, training.compile_s, training.reports[2])


def _compiled(env_id: str, agent: str, num_envs: int, **settings: Any) -> Any:
    from myriad import create_config
    from myriad.programs import TrainingProgram

    training = TrainingProgram(create_config(env_id, agent, num_envs, **settings))
    training.start()
    return training


def compared(env: str, num_envs: int, other: str) -> str:
    """Alternate a rollout with gymnax or with the loop of kernels, and return a line."""
    from myriad.timing import compare

    chunk = max(_STEPS, 1_000_000 // num_envs)
    if other == "gymnax":
        from benchmarks.sides.__main__ import GymnaxEnvs
        from benchmarks.sides.jax_scan import ScanStepper

        workload = Workload("gpu_report", "", env, "random", num_envs, chunk, (), ())
        peer = ScanStepper(GymnaxEnvs(env_id_of("gymnax", env)), Case("gymnax", workload))
        theirs: Any = partial(peer.run, chunk)
    else:
        theirs = _chunks(env, num_envs, chunk, loop_reason="the report asked for it")
    found = compare(_chunks(env, num_envs, chunk), theirs, num_pairs=11, min_sample_s=0.02)
    rates = [num_envs * chunk / timing.median_s for timing in (found.a, found.b)]
    return (
        f"{f'{env} to {other}':42} {num_envs:>10,}  {rates[0]:9.3g} {rates[1]:9.3g}"
        f"  {found.b_over_a:.2f} ({found.b_over_a_low:.2f} to {found.b_over_a_high:.2f})"
    )


def _chunks(env_id: str, num_envs: int, chunk: int, **attributes: Any) -> Callable[[], None]:
    """Return a call that runs a chunk of a rollout."""
    import jax

    from myriad import Rollout, make_agent, make_env

    env = make_env(env_id)
    rollout = Rollout(env, make_agent("random", env), num_envs, chunk)
    vars(rollout).update(attributes)
    state = rollout.init(0)

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(rollout.run_chunk(state))

    return run


def _measure(run: Run) -> bool:
    from myriad import configure
    from myriad.hardware import fingerprint

    os.environ["MYRIAD_COMPILATION_CACHE"] = "off"  # Compiling is measured.
    configure()
    machine = fingerprint()
    if machine.device_kind != "gpu":
        raise SuiteError(
            f"benchmarks/gpu_report.py needs a GPU, but JAX runs on the {machine.device_kind} "
            "here: install JAX for your GPU, as in `pip install 'myriad[gpu]'`."
        )
    print(f"{machine.device_name}, {machine.cores} cores")
    print(f"{'program':32} {'envs':>10}  {'steps/s':34} {'compile':8} {'temporary':12} asks")
    only = run.options.only or ""
    for name, num_envs, compiled in programs():
        if only in name:
            row = compiled().measured(name, num_envs)
            print(row, flush=True)
            run.save(row)
    print(f"\n{'rollout':42} {'envs':>10}  {'steps/s':>9} {'other':>9}  times as fast (95%)")
    for env in COMPARED:
        for num_envs in COMPARED_SIZES:
            for other in ("gymnax", "a loop of kernels"):
                if only in f"{env} to {other}":
                    print(compared(env, num_envs, other), flush=True)
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
