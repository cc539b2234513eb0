"""The programs of compile.py, memory_profile.py and scan_chunk.py: a rollout or a training.

A rollout has a fixed policy, a training an agent that learns. Both compile ahead of time, return
the compiler's statements about them, and then run a given number of steps. device_scaling.py runs
rollouts without compiling ahead.
"""

import time
from typing import Any, Self

from benchmarks.harness.process import Reply, run
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import machine_columns
from benchmarks.harness.worker import ChildError, peak_bytes
from benchmarks.harness.workload import Workload

TIMEOUT_S = 900.0  # timeout of a child that compiles or runs a program
# So long that no schedule ends while a training is timed.
STEPS_PER_ENV = 1_000_000


class RolloutProgram:
    """The rollout of a fixed policy. `start` allocates memory, and `compile` does not.

    It has the attributes of `myriad.programs.TrainingProgram` that these suites read.
    """

    def __init__(self, env: Any, agent: Any, num_envs: int, scan_chunk_size: int, **options: Any):
        from myriad import Rollout

        self.rollout = Rollout(env, agent, num_envs, scan_chunk_size, **options)
        self.scan_chunk_size = scan_chunk_size
        self.num_devices = self.rollout.layout.num_devices

    def compile(self) -> Self:
        """Compile ahead of time, for what the compiler says."""
        import jax

        from myriad.xla import describe

        first = jax.jit(self.rollout.init, static_argnums=0).lower(0).compile()

        def shape_of(leaf: Any, sharding: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        state = jax.tree.map(shape_of, first.out_info, first.output_shardings)
        start = time.perf_counter()
        chunk = self.rollout.compile(state)
        self.compile_s = time.perf_counter() - start
        self.reports = describe(chunk), describe(first)
        return self

    @property
    def updates(self) -> Any:
        """The compiled chunk."""
        return self.rollout.compile(self.state)

    def start(self) -> None:
        """Reset every environment."""
        self.state = self.rollout.init(seed=0)

    def run(self, num_steps: int) -> None:
        """Run `num_steps` steps of every environment. Return when the device is done."""
        from myriad import timing

        self.state = timing.block_until_ready(self.rollout.run(self.state, num_steps))


def program(env: str, agent: str, num_envs: int, scan_chunk_size: int) -> Any:
    """Compile the program that a user of the agent would run, without running it."""
    import myriad

    myriad.configure()
    made = myriad.make_env(env)
    policy = myriad.make_agent(agent, made)
    if not hasattr(policy, "update"):
        return RolloutProgram(made, policy, num_envs, scan_chunk_size).compile()
    from myriad.programs import TrainingProgram

    return TrainingProgram(
        myriad.create_config(env, agent, num_envs, STEPS_PER_ENV, scan_chunk_size)
    )


def stated(compiled: Any) -> Reply:
    """Return what the compiler states of a program, on all devices together."""
    chunk = compiled.reports[0]
    return {
        "argument_bytes": compiled.num_devices * chunk.argument_bytes,
        "temp_bytes": compiled.num_devices * chunk.temp_bytes,
        "output_bytes": compiled.num_devices * chunk.output_bytes,
        "code_bytes": sum(each.generated_code_bytes for each in compiled.reports),
    }


def compile_in_child(request: dict[str, Any], *, runs: bool = False) -> Reply:
    """Compile `program(**request)` in a new process without a cache, and run a chunk if asked to.

    Raises:
        ChildError: the process refused, died, hung or took too much memory.
    """
    target = "benchmarks.harness.programs:_compiled_here"
    limits = {"timeout_s": TIMEOUT_S, "MYRIAD_COMPILATION_CACHE": "off"}
    return run(target, request | {"runs": runs}, **limits)


def _compiled_here(*, runs: bool, **request: Any) -> Reply:
    compiled = program(**request)
    if runs:
        compiled.start()
        compiled.run(compiled.scan_chunk_size)
    return stated(compiled) | {
        "columns": machine_columns(),
        "scan_chunk_size": compiled.scan_chunk_size,
        "compile_s": compiled.compile_s,
        "instructions": sum(report.instructions for report in compiled.reports),
        "peak_bytes": peak_bytes(),
    }


def request_of(workload: Workload) -> dict[str, Any]:
    """Return the arguments of `program` in the form that a child takes."""
    names = ("env", "agent", "num_envs", "scan_chunk_size")
    return {name: getattr(workload, name) for name in names}


def machine() -> Reply:
    """Ask a child for this machine's `columns` of a row and its usable devices.

    Rows for failures need the columns too.

    Raises:
        SuiteError: there is no such device.
    """
    try:
        return run("benchmarks.harness.programs:_machine_of_child", {}, timeout_s=TIMEOUT_S)
    except ChildError as error:
        raise SuiteError(str(error)) from error


def _machine_of_child() -> Reply:
    import jax

    import myriad

    myriad.configure()
    columns = machine_columns()
    # A CPU can be split into any number of devices, but only its cores count.
    is_cpu = columns["device"] == "cpu"
    return {
        "columns": columns,
        "usable_devices": columns["cores"] if is_cpu else jax.local_device_count(),
    }
