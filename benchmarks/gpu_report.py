"""Report the rates of rollouts, trainings and evaluations on this machine's GPU.

    python benchmarks/gpu_report.py                  every program, in under 10 minutes
    python benchmarks/gpu_report.py --only rollout   programs whose name contains this

`asks` counts the loops whose condition the runtime copies to the host in every pass, because the
compiler doesn't know the number of passes. To see the effect of a change, run the report on both
commits on the same machine. throughput.py compares with gymnax.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness.libraries import SuiteError
from benchmarks.harness.programs import program
from benchmarks.runner import Run, Script, print_headers, print_row, readable, text

_STEPS = 128
PROGRAMS = (
    *(("rollout", "cartpole-control", "random", 10**power) for power in (0, 3, 5, 6, 7)),
    ("rollout", "pendulum-control", "random", 100_000),
    ("rollout", "snake", "random", 100_000),
    ("rollout", "bucket-brigade", "random", 100_000),
    ("rollout", "gene-circuit-control", "random", 100_000),
    ("record", "cartpole-control", "random", 100_000),
    ("train", "cartpole-control", "ppo", 1_024),
    ("train", "cartpole-control", "ppo", 65_536),
    ("train", "cartpole-control", "pqn", 1_024),
    ("train", "cartpole-control", "pqn", 65_536),
    ("train", "cartpole-control", "dqn", 8),
    ("train", "cartpole-control", "dqn", 1_024),
    ("train", "cartpole-control", "dqn", 65_536),
    ("train", "pendulum-control", "ppo", 4_096),
    ("train", "snake", "ppo", 4_096),
    ("evaluate", "cartpole-control", "ppo", 1_024),
)
_TRAINING_S = 0.5  # seconds of a timed call that trains
# What is timed, its steps, its seconds of compiling, and the compiler's statements about it.
_Ready = tuple[Callable[[], Any], int, float, Any]


def _rollout(env: str, agent: str, num_envs: int) -> _Ready:
    rollout = program(env, agent, num_envs, _STEPS)
    rollout.start()
    return partial(rollout.run, _STEPS), num_envs * _STEPS, rollout.compile_s, rollout.reports[0]


def _record(env: str, agent: str, num_envs: int) -> _Ready:
    import jax

    from myriad.xla import describe

    built = program(env, agent, num_envs, _STEPS)
    built.start()
    start = time.perf_counter()
    record = jax.jit(built.rollout.record_chunk, donate_argnums=0).lower(built.state).compile()
    compile_s = time.perf_counter() - start

    def call() -> None:
        built.state, _ = jax.block_until_ready(record(built.state))

    return call, num_envs * _STEPS, compile_s, describe(record)


def _train(env: str, agent: str, num_envs: int) -> _Ready:
    training = program(env, agent, num_envs, _STEPS)
    training.start()
    training.run_updates(2, 2)
    start = time.perf_counter()
    training.run_updates(4, 4)
    updates = max(1, round(_TRAINING_S * 4 / (time.perf_counter() - start)))
    call = partial(training.run_updates, updates, updates)
    return call, updates * training.steps_per_update, training.compile_s, training.reports[0]


def _evaluate(env: str, agent: str, num_envs: int) -> _Ready:
    """Play greedy episodes of an untrained agent, until the last one has ended."""
    from myriad import create_config
    from myriad.programs import TrainingProgram

    training = TrainingProgram(create_config(env, agent, num_envs, eval_rollouts=num_envs))
    training.start()
    _, _, lengths = training.evaluate()
    num_steps = int(lengths.max()) * num_envs
    return training.evaluate, num_steps, training.compile_s, training.reports[2]


_KINDS = {"rollout": _rollout, "record": _record, "train": _train, "evaluate": _evaluate}


def _measure(run: Run) -> bool:
    from myriad import configure
    from myriad.hardware import fingerprint
    from myriad.timing import measure

    os.environ["MYRIAD_COMPILATION_CACHE"] = "off"  # Compiling is measured.
    configure()
    machine = fingerprint()
    if machine.device_kind != "gpu":
        raise SuiteError(
            f"benchmarks/gpu_report.py needs a GPU, but JAX runs on the {machine.device_kind} "
            "here: install JAX for your GPU, as in `pip install 'myriad-rl[gpu]'`."
        )
    print(f"{machine.device_name}, {machine.cores} cores")
    print_headers("program", "environments", "steps/s (95%)", "compiling, s", "temporaries", "asks")
    for kind, env, agent, num_envs in PROGRAMS:
        name = f"{kind} {agent} {env}"
        if (run.options.only or "") not in name:
            continue
        call, num_steps, compile_s, report = _KINDS[kind](env, agent, num_envs)
        timing = measure(call, num_samples=7, min_sample_s=0.05)
        rate, low, high = (num_steps / s for s in (timing.median_s, timing.high_s, timing.low_s))
        shown = f"{rate:.3g} ({low:.3g} to {high:.3g})"
        sizes = (readable(report.temp_bytes), report.open_loops)
        print_row(name, f"{num_envs:,}", shown, f"{compile_s:.1f}", *sizes)
        run.save(
            {
                "name": name,
                "num_envs": num_envs,
                "steps_per_s": rate,
                "steps_per_s_low": low,
                "steps_per_s_high": high,
                "compile_s": compile_s,
                "temp_bytes": report.temp_bytes,
                "asks": report.open_loops,
            }
        )
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
