"""Measure environment steps per second of the compiled rollout, with random actions.

    python benchmarks/throughput.py                       a few sizes of CartPole beside gymnax
    python benchmarks/throughput.py --full                every size of suite.toml
    python benchmarks/throughput.py --full --env snake    the same of another environment
    python benchmarks/throughput.py --targets             the targets; exit code 1 if one is missed
    python benchmarks/throughput.py --devices             scaling over 1, 2, 4, ... devices
    python benchmarks/throughput.py --gpu                 rates on a GPU, also of trainings

An asv suite and a command line. comparison.py measures policies with a network.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from benchmarks.harness.alternation import Budget, Outcome
from benchmarks.harness.asv_suite import AsvSuite, names_of, skip_unless_several_cores
from benchmarks.harness.device_scaling import measure_scaling
from benchmarks.harness.gpu_programs import measure_gpu
from benchmarks.harness.plausibility import measure
from benchmarks.harness.registry import OURS, env_id_of, library_of
from benchmarks.harness.tables import markdown, times
from benchmarks.harness.targets import check_targets, targets_table
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import chosen, load, sizes_of
from benchmarks.plots.draw import draw_run
from benchmarks.runner import AGENT, NUM_ENVS, Run, Script, environment, switch, text, whole

QUICK = Budget(num_rounds=11, max_s=5.0)
FULL = Budget(num_rounds=15, max_s=20.0)
_ROUNDS = 15  # of --devices


class Throughput(AsvSuite):
    """Seconds of one compiled chunk; steps/s are num_envs x scan_chunk_size over them."""

    # There is only one parameter, since asv combines all parameters and 1,000,000 environments need
    # a chunk size of their own. The value is seconds, not a rate, since asv assumes that lower is
    # better.
    suite = "throughput"
    params: ClassVar = names_of(suite)
    version = "1"  # raise this if the meaning of the timed work or of myriad.timing changes
    timed_is_program = True  # for the gate: equal programs need no timing

    def prepare(self, declared: Workload) -> None:
        from myriad import Rollout, make_agent, make_env, timing

        env = make_env(declared.env)
        agent = make_agent(declared.agent, env)
        self.rollout = Rollout(env, agent, declared.num_envs, declared.scan_chunk_size)
        self.block_until_ready: Any = timing.block_until_ready
        self.state = self.rollout.init(seed=0)
        for _ in range(2):
            self.time_chunk(declared.name)

    def time_chunk(self, workload: str) -> None:
        """Run one chunk."""
        self.state = self.rollout.run_chunk(self.state)
        self.block_until_ready(self.state)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk, for the gate."""
        return self.rollout.compile(self.state)


class SeveralCores(Throughput):
    """Seconds of a chunk whose environments are divided among all cores. gate.toml unpins it."""

    params: ClassVar = ["cartpole-10k"]

    def prepare(self, declared: Workload) -> None:
        skip_unless_several_cores()
        super().prepare(declared)


class Recording(Throughput):
    """Seconds of a chunk that keeps every step, in an environment that paints a grid."""

    params: ClassVar = ["snake-100-recorded"]
    version = "2"

    def time_chunk(self, workload: str) -> None:
        """Run one chunk and keep its steps."""
        self.state, trajectory = self.rollout.record_chunk(self.state)
        self.block_until_ready(trajectory)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk, for the gate."""
        import jax

        return jax.jit(self.rollout.record_chunk, donate_argnums=0).lower(self.state).compile()


class Gymnax(Throughput):
    """Seconds of the same chunk with gymnax, to which a ratio budget in gate.toml compares ours."""

    params: ClassVar = ["cartpole-10k"]

    def prepare(self, declared: Workload) -> None:
        from benchmarks.libraries.jax_libraries import GymnaxEnvs, ScanStepper

        envs = GymnaxEnvs(env_id_of("gymnax", declared.env))
        self.stepper = ScanStepper(envs, Case("gymnax", declared))
        self.num_steps = declared.scan_chunk_size
        self.time_chunk(declared.name)

    def time_chunk(self, workload: str) -> None:
        """Run one chunk."""
        self.stepper.run(self.num_steps)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk, for the gate."""
        return self.stepper.program()


def _run(run: Run) -> bool | None:
    options = run.options
    if options.devices is not None:
        run.open("devices")
        workloads = chosen("devices", options)
        return measure_scaling(workloads, options.devices, options.rounds or _ROUNDS, run.file)
    if options.gpu:
        run.open("gpu")
        return measure_gpu(options.env, options.agent, run.file)
    run.open("throughput")
    succeeded = True
    if options.full or not options.targets:
        workloads = sizes_of("throughput", options, options.num_steps)
        # gymnax runs beside ours if it has the environment
        libraries = [OURS, *(["gymnax"] if env_id_of("gymnax", workloads[0].env) else [])]
        budget = FULL if options.full else QUICK
        groups = [
            measure([Case(library, workload) for library in libraries], budget, run.file)
            for workload in workloads
        ]
        print(scaling_table(groups))
        succeeded = all(group[0].status == "ok" for group in groups)
    if options.targets:
        declaration = load()
        if options.env:
            targets = declaration.targets_of(options.env)
            declaration = replace(declaration, targets=targets)
        verdicts = check_targets(declaration, lambda cases: measure(cases, FULL, run.file))
        print(targets_table(verdicts))
        succeeded &= all(verdict.word != "MISSED" for verdict in verdicts)
    # What a reader must know of a library, once, because every size has the same note.
    noted = (row for row in run.file.rows if row["status"] == "ok" and row["reason"])
    for note in dict.fromkeys(
        f"* {library_of(row['library'])}, {row['env']}: {row['reason']}" for row in noted
    ):
        print(note)
    for env in dict.fromkeys(row["env"] for row in run.file.rows):
        draw_run(run.file.path, env)
    return succeeded


def _mode(options: Any) -> str:
    if options.devices is not None:
        return "--devices"
    return "--gpu" if options.gpu else "--targets" if options.targets else ""


def scaling_table(groups: Sequence[Sequence[Outcome]]) -> str:
    """Return a line per workload: steps/s of each library, their ratio and the compile time."""
    libraries = [outcome.case.side for outcome in groups[0]]
    headers = ["environments", "scan chunk", *(f"{each}, M steps/s" for each in libraries)]
    headers += ["times as fast (95% interval)"] * (len(libraries) > 1) + ["compiling, s"]
    rows = []
    for group in groups:
        workload = group[0].case.workload
        cells = [f"{workload.num_envs:,}", f"{workload.scan_chunk_size:,}"]
        for outcome in group:
            if outcome.status == "ok":
                star = "*" if outcome.reason else ""
                rate = statistics.median(outcome.rates())
                cells.append(f"{rate / 1e6:,.{1 if rate >= 1e7 else 3}f}{star}")
            else:
                cells.append(outcome.status)
        cells += [times(*group)] if len(group) > 1 else []
        compile_s = [outcome.prepared.get("compile_s") for outcome in group]
        shown = ["-" if seconds is None else f"{seconds:.1f}" for seconds in compile_s]
        rows.append([*cells, " / ".join(shown)])
    return markdown(headers, rows)


SCRIPT = Script(
    "throughput",
    __doc__,
    _run,
    {
        "--full": switch("measure every size of suite.toml, up to 1,000,000 environments"),
        "--num-envs": NUM_ENVS,
        "--scan-chunk-size": whole("number of steps in a compiled call (default: suite.toml's)"),
        "--env": text(
            "environment, or package.module:Class (default: cartpole; --targets, --devices and "
            "--gpu: all of them)",
            type=environment,
        ),
        "--num-steps": whole("number of steps in a timed call (default: as many as take 0.05 s)"),
        "--targets": switch("check the targets of suite.toml; exit code 1 if one is missed"),
        "--devices": whole(
            "measure how rollouts and trainings scale over these numbers of devices, in addition "
            "to 1 (default: 1, 2, 4, ... up to all devices)",
            nargs="*",
        ),
        "--rounds": whole(
            f"with --devices: rounds, each of which calls everything once (default: {_ROUNDS})"
        ),
        "--gpu": switch("measure rollouts and trainings on this machine's GPU"),
        "--agent": {**AGENT, "help": "with --devices or --gpu: agent (default: all)"},
    },
    exclusive=[("--full", "--num-envs"), ("--devices", "--gpu", "--targets")],
    mode=_mode,
    goes_with={
        "--full": ("", "--devices", "--targets"),
        "--num-envs": ("",),
        "--scan-chunk-size": ("",),
        "--num-steps": ("",),
        "--agent": ("--devices", "--gpu"),
        "--rounds": ("--devices",),
    },
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
