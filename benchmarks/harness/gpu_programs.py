"""Rates of rollouts, trainings and evaluations on this machine's GPU: `throughput.py --gpu`.

To see the effect of a change, run it on both commits on the same machine.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness.programs import program
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import ResultsFile, machine_columns
from benchmarks.harness.tables import between, print_headers, print_row, readable
from benchmarks.harness.worker import calibrated

_STEPS = 128
# What is timed, the environment, the agent, and the number of environments.
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


def measure_gpu(env: str | None, agent: str | None, file: ResultsFile) -> None:
    """Time the programs of an environment and an agent, or of all, and save and print their rows.

    The last column counts the loops whose condition the runtime copies to the host in every pass,
    because the compiler doesn't know the number of passes.

    Raises:
        SuiteError: JAX runs on no GPU, or no program is of this environment and agent.
    """
    from myriad import configure
    from myriad.timing import measure

    wanted = [each for each in PROGRAMS if env in (None, each[1]) and agent in (None, each[2])]
    if not wanted:
        raise SuiteError(f"--gpu measures nothing of {agent or 'any agent'} in {env}.")
    os.environ["MYRIAD_COMPILATION_CACHE"] = "off"  # Compiling is measured.
    configure()
    columns = machine_columns()
    if columns["device"] != "gpu":
        raise SuiteError(
            f"--gpu needs a GPU, but JAX runs on the {columns['device']} here: install JAX for "
            "your GPU, as in `pip install 'myriad-rl[gpu]'`."
        )
    headers = ("program", "environments", "steps/s (95%)", "compiling, s", "temporaries")
    print_headers(*headers, "loops that ask the host")
    for kind, env_id, name, num_envs in wanted:
        call, num_steps, compile_s, report = _KINDS[kind](env_id, name, num_envs)
        timing = measure(call, num_samples=7, min_sample_s=0.05)
        row = columns | {"env": env_id, "agent": name, "num_envs": num_envs}
        row |= {"arm": kind, "scan_chunk_size": _STEPS, "num_steps": num_steps}
        row |= {"run_s": timing.median_s, "samples": 7, "compile_s": compile_s}
        row |= {
            "steps_per_s": num_steps / timing.median_s,
            "steps_per_s_low": num_steps / timing.high_s,
            "steps_per_s_high": num_steps / timing.low_s,
            "temp_bytes": report.temp_bytes,
        }
        file.add([row], {"program": (kind, env_id, name, num_envs), "seconds": timing.samples_s})
        said = f"{kind} {name} {env_id}"
        cells = (f"{row['num_envs']:,}", between(row, "steps_per_s", ".3g"), f"{compile_s:.1f}")
        print_row(said, *cells, readable(report.temp_bytes), report.open_loops)


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
    updates = calibrated(lambda updates: training.run_updates(updates, updates), 1, _TRAINING_S)
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
