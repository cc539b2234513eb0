"""The programs of compile.py, memory_profile.py and scan_chunk.py: a rollout or a training.

A rollout has a fixed policy, a training an agent that learns. Both compile ahead of time, return
the compiler's statements about them, and then run a given number of steps.
"""

import time
from typing import Any

from benchmarks.harness import package
from benchmarks.harness.process.child_process import Reply, run
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import machine_columns
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import SuiteError, Workload

TIMEOUT_S = 900.0  # timeout of a child that compiles or runs a program
# So long that no schedule ends while a training is timed.
_STEPS_PER_ENV = 1_000_000


class RolloutProgram:
    """The rollout of a fixed policy, compiled ahead of time. `start` allocates memory.

    Attributes:
        compile_s: seconds of tracing and compiling the chunk.
        reports: the compiler's statements about the programs, the chunk's first.
        stated_bytes: their peak memory on all devices together, as stated by the compiler.
    """

    def __init__(self, env: Any, agent: Any, num_envs: int, scan_chunk_size: int):
        import jax

        from myriad import Rollout

        describe = package.find("myriad.xla:describe")

        self._rollout = Rollout(env, agent, num_envs, scan_chunk_size)
        self.scan_chunk_size = scan_chunk_size
        first = jax.jit(self._rollout.init, static_argnums=0).lower(0).compile()
        state = jax.tree.map(_described, first.out_info, first.output_shardings)
        start = time.perf_counter()
        chunk = self._rollout.compile(state)
        self.compile_s = time.perf_counter() - start
        self.num_devices = self._rollout.layout.num_devices
        self.reports = describe(chunk), describe(first)
        self.stated_bytes = self.num_devices * max(report.peak_bytes for report in self.reports)

    def start(self) -> None:
        """Reset every environment."""
        self._state = self._rollout.init(seed=0)

    def run(self, num_steps: int) -> None:
        """Run `num_steps` steps of every environment. Return when the device is done."""
        from myriad import timing

        self._state = timing.block_until_ready(self._rollout.run(self._state, num_steps))


class TrainingProgram:
    """The training of a learning agent, with the attributes of a `RolloutProgram`.

    A chunk holds whole updates, so `scan_chunk_size` is the requested size rounded up.
    """

    def __init__(self, env: str, agent: str, num_envs: int, scan_chunk_size: int):
        create_config = package.find("myriad:create_config")
        program_bytes = package.find("myriad.training.memory:program_bytes")
        CompiledTraining = package.find("myriad.training.programs:CompiledTraining")
        describe = package.find("myriad.xla:describe")

        training = CompiledTraining(
            create_config(env, agent, num_envs, _STEPS_PER_ENV, scan_chunk_size).resolve()
        )
        training.compile()
        self._training = training
        self._unit = training.steps_per_update // num_envs
        self.scan_chunk_size = training.chunk * self._unit
        self.compile_s = training.compile_s
        self.num_devices = training.loop.num_devices
        self.reports = tuple(
            describe(each) for each in (training.run, training.init, training.evaluate)
        )
        self.stated_bytes = program_bytes(training)

    def start(self) -> None:
        """Make the state before the first update."""
        self._state = self._training.first_state()

    def run(self, num_steps: int) -> None:
        """Run whole updates of at least `num_steps` steps. Return when the device is done."""
        import numpy as np

        from myriad import timing

        end = -(-num_steps // self._unit)
        for done in range(0, end, self._training.chunk):
            num_updates = np.int32(min(self._training.chunk, end - done))
            self._state, _ = self._training.run(self._state, num_updates, np.bool_(done == 0))
        timing.block_until_ready(self._state)


def program(
    env: str, agent: str, num_envs: int, scan_chunk_size: int
) -> RolloutProgram | TrainingProgram:
    """Compile the program that a user of the agent would run, without running it."""
    import myriad

    myriad.configure()
    made = myriad.make_env(env)
    policy = myriad.make_agent(agent, made)
    if hasattr(policy, "update"):
        return TrainingProgram(env, agent, num_envs, scan_chunk_size)
    return RolloutProgram(made, policy, num_envs, scan_chunk_size)


def skip_unless_compilable(workload: Workload) -> None:
    """Configure JAX for measuring, or have asv skip a workload that this commit can't compile here.

    Raises:
        NotImplementedError: the commit or the machine lacks what the workload needs.
    """
    skip_unless_runnable(workload)
    import myriad

    package.find("myriad.xla:describe")
    policy = myriad.make_agent(workload.agent, myriad.make_env(workload.env))
    if hasattr(policy, "update"):
        package.find("myriad.training.programs:CompiledTraining")
        package.find("myriad.training.memory:program_bytes")


def chunk_bytes(compiled: RolloutProgram | TrainingProgram) -> dict[str, int]:
    """Return the bytes of the chunk's arguments and temporaries, on all devices together."""
    chunk = compiled.reports[0]
    return {
        "argument_bytes": compiled.num_devices * chunk.argument_bytes,
        "temp_bytes": compiled.num_devices * chunk.temp_bytes,
    }


def request_of(workload: Workload) -> dict[str, Any]:
    """Return the arguments of `program` in the form that a child takes."""
    return {
        name: getattr(workload, name) for name in ("env", "agent", "num_envs", "scan_chunk_size")
    }


def _described(leaf: Any, sharding: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def machine() -> Reply:
    """Ask a child for this machine's `columns` of a row and its `available_bytes`.

    Rows for failures need the columns too.

    Raises:
        SuiteError: there is no such device.
    """
    try:
        return run("benchmarks.harness.programs:_machine_of_child", {}, timeout_s=TIMEOUT_S)
    except ChildError as error:
        raise SuiteError(str(error)) from error


def _machine_of_child() -> Reply:
    import myriad
    from myriad import hardware

    myriad.configure()
    columns = machine_columns()
    return {"columns": columns, "available_bytes": hardware.fingerprint().memory_available_bytes}
