"""What asv suites share: a setup that compiles once, and skips what can't be run here."""

import os
from typing import Any, ClassVar

from benchmarks.harness.registry import at_import
from benchmarks.harness.workloads import Training, Workload, load, tier_from_environment


def names_of(suite: str) -> list[str]:
    """Return the names of a suite's workloads in the tier of MYRIAD_TIER, as asv's `params`."""
    return at_import(lambda: list(load().of(suite, tier_from_environment())))


class AsvSuite:
    """The base of asv suites. asv calls `setup` before every sample, and it prepares once.

    Attributes:
        suite: the table in suite.toml that declares its workloads.
        always: the workload of a suite without parameters.
    """

    timeout = 300
    param_names: ClassVar = ["workload"]  # asv drops it where a suite has no parameters
    suite = ""
    always = ""
    prepared: Any = None

    def setup(self, *params: str) -> None:
        """Compile and warm up, or have asv skip what this commit or machine can't run."""
        if self.prepared == params:
            return
        declared = load().of(self.suite)[self.always or params[0]]
        skip_unless_runnable(declared)
        try:
            self.prepare(declared)
        except ImportError as missing:  # of a peer, or of a name that an older commit lacks
            raise NotImplementedError(f"can't run {declared.name}: {missing}") from missing
        self.prepared = params

    def prepare(self, declared: Any) -> None:
        """Compile and warm up a declared workload or training."""


def skip_unless_runnable(workload: Workload | Training) -> None:
    """Configure JAX for measuring, or have asv skip the workload.

    Raises:
        NotImplementedError: the commit lacks something that the workload needs. asv then skips the
            benchmark.
    """
    try:
        from myriad import configure, list_agents, list_envs
    except ImportError as missing:
        raise NotImplementedError(f"this commit can't run {workload.name}: {missing}") from missing
    knows_env = ":" in workload.env or workload.env in list_envs()
    if not knows_env or workload.agent not in list_agents():
        raise NotImplementedError(f"this commit lacks {workload.env} or the agent {workload.agent}")
    configure()


def skip_unless_several_cores() -> None:
    """Have asv skip benchmarks of the scaling over a CPU's cores if there is only one core.

    Raises:
        NotImplementedError: JAX runs elsewhere, or this process may use only one core.
    """
    from myriad import hardware

    if hardware.resolve_platform() != "cpu":
        raise NotImplementedError("this benchmark needs JAX to run on a CPU")
    # The operating system counts the cores, not Myriad. A commit of Myriad that no longer sees the
    # second core must be timed.
    if len(os.sched_getaffinity(0)) < 2:
        raise NotImplementedError("this process may use only one core")
