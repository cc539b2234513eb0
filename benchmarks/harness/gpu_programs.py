"""Rates of rollouts and trainings on this machine's GPU: `throughput.py --gpu`.

To see the effect of a change, run it on both commits on the same machine.
"""

import os
from functools import partial

from benchmarks.harness.programs import program
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import ResultsFile, machine_columns, spread
from benchmarks.harness.tables import between, print_headers, print_row, readable

_STEPS = 128
# The environment, the agent, and the number of environments.
PROGRAMS = (
    *(("cartpole-control", "random", 10**power) for power in (0, 3, 5, 6, 7)),
    ("pendulum-control", "random", 100_000),
    ("snake", "random", 100_000),
    ("bucket-brigade", "random", 100_000),
    ("gene-circuit-control", "random", 100_000),
    *(("cartpole-control", agent, 1_024) for agent in ("ppo", "pqn", "dqn")),
    *(("cartpole-control", agent, 65_536) for agent in ("ppo", "pqn", "dqn")),
    ("cartpole-control", "dqn", 8),
    ("pendulum-control", "ppo", 4_096),
    ("snake", "ppo", 4_096),
)


def measure_gpu(env: str | None, agent: str | None, file: ResultsFile) -> None:
    """Time a chunk of the programs of an environment and an agent, or of all. Save and print rows.

    The last column counts the loops whose condition the runtime copies to the host in every pass,
    because the compiler doesn't know the number of passes.

    Raises:
        SuiteError: JAX runs on no GPU, or no program is of this environment and agent.
    """
    from myriad import configure
    from myriad.timing import measure

    wanted = [each for each in PROGRAMS if env in (None, each[0]) and agent in (None, each[1])]
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
    for env_id, name, num_envs in wanted:
        built = program(env_id, name, num_envs, _STEPS)
        (built.start if name == "random" else built.warm_up)()
        call = partial(built.run, built.scan_chunk_size)
        call()
        timing = measure(call, num_samples=7, min_sample_s=0.05)
        num_steps = num_envs * built.scan_chunk_size
        row = columns | {
            "env": env_id,
            "agent": name,
            "num_envs": num_envs,
            "scan_chunk_size": built.scan_chunk_size,
            "num_steps": built.scan_chunk_size,
            "run_s": timing.median_s,
            "compile_s": built.compile_s,
            "temp_bytes": built.reports[0].temp_bytes,
        }
        row |= spread([num_steps / each for each in timing.samples_s], "steps_per_s")
        file.add([row], {"program": (env_id, name, num_envs), "seconds": timing.samples_s})
        cells = (between(row, "steps_per_s", ".3g"), f"{row['compile_s']:.1f}")
        memory = readable(row["temp_bytes"])
        said = f"{name} in {env_id}"
        print_row(said, f"{num_envs:,}", *cells, memory, built.reports[0].open_loops)
