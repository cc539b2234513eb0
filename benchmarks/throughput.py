"""Measure environment steps per second of the compiled rollout, with random actions.

    python benchmarks/throughput.py                       a few sizes of CartPole beside gymnax
    python benchmarks/throughput.py --full                every size of suite.toml
    python benchmarks/throughput.py --full --env snake    the same of another environment
    python benchmarks/throughput.py --targets             the targets; exit code 1 if one is missed

An asv suite and a command line. Policies with a network and whole trainings are measured by other
suites, since their steps cost more.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of, skip_unless_several_cores
from benchmarks.harness.interleave import Budget, Case
from benchmarks.harness.libraries import OURS, library_of
from benchmarks.harness.results import Row, scaling_table
from benchmarks.harness.sanity import measure
from benchmarks.harness.targets import check_targets, targets_table
from benchmarks.harness.workloads import (
    DEVICES,
    Declaration,
    Workload,
    load,
    tier_from_environment,
)
from benchmarks.runner import NUM_ENVS, Run, Script, progress, resolved_env, switch, text, whole

QUICK = Budget(num_rounds=11, max_s=5.0)
FULL = Budget(num_rounds=15, max_s=20.0)


class Throughput(AsvSuite):
    """Seconds of one compiled chunk; steps/s are num_envs x scan_chunk_size over them."""

    # There is only one parameter, since asv combines all parameters and 1,000,000 environments need
    # a chunk size of their own. The value is seconds, not a rate, since asv assumes that lower is
    # better.
    suite = "throughput"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "1"  # raise this if the meaning of the timed work or of myriad.timing changes
    timed_is_program = True  # for the gate: equal programs need no timing

    def prepare(self, declared: Workload) -> None:
        self.rollout, self.block_until_ready = _rollout(declared)
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
        from benchmarks.sides.__main__ import GymnaxEnvs
        from benchmarks.sides.jax_scan import ScanStepper

        try:
            envs = GymnaxEnvs(load().env_id_of("gymnax", declared))
        except ImportError as missing:
            raise NotImplementedError(f"gymnax is not installed: {missing}") from missing
        self.stepper = ScanStepper(envs, declared, record=False, seed=0, returns=False)
        self.num_steps = declared.scan_chunk_size
        self.time_chunk(declared.name)

    def time_chunk(self, workload: str) -> None:
        """Run one chunk."""
        self.stepper.run(self.num_steps)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk, for the gate."""
        return self.stepper.program()


def _rollout(workload: Workload) -> tuple[Any, Callable[[Any], Any]]:
    """Return an uncompiled rollout, and a function that waits for its results."""
    from myriad import Rollout, make_agent, make_env, timing

    env = make_env(workload.env)
    agent = make_agent(workload.agent, env)
    rollout = Rollout(env, agent, workload.num_envs, workload.scan_chunk_size)
    return rollout, timing.block_until_ready


def _run(run: Run) -> bool:
    declaration = load()
    succeeded = True
    if run.options.full or not run.options.targets:
        succeeded = _run_scaling(run, declaration)
    if run.options.targets:
        succeeded = _run_targets(run, declaration) and succeeded
    print_notes(run.file.rows)
    return succeeded


def print_notes(rows: Sequence[Row]) -> None:
    """Print what a reader must know of a library, once, because every size has the same note."""
    noted = (row for row in rows if row["status"] == "ok" and row["reason"])
    for library, env, note in dict.fromkeys(
        (library_of(row["library"]), row["env"], row["reason"]) for row in noted
    ):
        print(f"* {library}, {env}: {note}")


def _refuses(options: argparse.Namespace) -> str | None:
    if options.targets and (options.num_envs or options.scan_chunk_size or options.num_steps):
        return (
            "--targets measures what suite.toml declares, "
            "so only --env, --full and --output go with it"
        )
    return None


def chosen(options: Any, declaration: Declaration) -> list[Workload]:
    """Return the workloads that the flags select.

    They are the declared ones, or the nearest of these with the flags' values. An environment
    without declared workloads takes the sizes and chunks of CartPole.
    """
    env = resolved_env(options.env or "cartpole")
    matrix = sorted(
        declaration.select("throughput", "full").values(), key=lambda workload: workload.num_envs
    )
    cartpole = [
        replace(workload, env=env)
        for workload in matrix
        if workload.env == resolved_env("cartpole")
    ]
    workloads = [workload for workload in matrix if workload.env == env] or cartpole
    if options.num_envs:
        nearest = max(
            (w for w in workloads if w.num_envs <= options.num_envs),
            key=lambda w: w.num_envs,
            default=workloads[0],
        )
        workloads = [replace(nearest, num_envs=options.num_envs, devices=DEVICES)]
    elif not options.full:
        workloads = [
            workload for workload in workloads if tier_from_environment() in workload.tiers
        ]
    given = {"scan_chunk_size": options.scan_chunk_size, "num_steps": options.num_steps}
    return [
        replace(workload, **{name: value for name, value in given.items() if value})
        for workload in workloads
    ]


def _run_scaling(run: Run, declaration: Declaration) -> bool:
    """Measure each workload, beside gymnax if gymnax has the environment."""
    workloads = chosen(run.options, declaration)
    sides = (OURS, "gymnax") if declaration.env_id_of("gymnax", workloads[0]) else (OURS,)
    budget = FULL if run.options.full else QUICK
    groups = []
    with progress(len(workloads)) as on_event:
        for workload in workloads:
            cases = [Case(side, workload) for side in sides]
            groups.append(measure(cases, budget, run.file, declaration, on_event))
    print(scaling_table(groups))
    return all(group[0].status == "ok" for group in groups)


def _run_targets(run: Run, declaration: Declaration) -> bool:
    if run.options.env:
        targets = declaration.targets_of(resolved_env(run.options.env))
        declaration = replace(declaration, targets=targets)
    with progress(len(declaration.targets)) as on_event:
        verdicts = check_targets(
            declaration, lambda cases: measure(cases, FULL, run.file, declaration, on_event)
        )
    print(targets_table(verdicts))
    return all(verdict.word != "MISSED" for verdict in verdicts)


SCRIPT = Script(
    "throughput",
    __doc__,
    _run,
    {
        "--full": switch("measure every size of suite.toml, up to 1,000,000 environments"),
        "--num-envs": NUM_ENVS,
        "--scan-chunk-size": whole("number of steps in a compiled call (default: suite.toml's)"),
        "--env": text(
            "environment, or package.module:Class (default: cartpole; --targets: all of them)"
        ),
        "--num-steps": whole("number of steps in a timed call (default: as many as take 0.05 s)"),
        "--targets": switch("check the targets of suite.toml; exit code 1 if one is missed"),
    },
    exclusive=("--full", "--num-envs"),
    suite="throughput",
    plot="throughput",
    refuses=_refuses,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
