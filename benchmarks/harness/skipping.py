"""Skip workloads that this commit can't run on this machine. Every asv suite calls this first."""

import os

from benchmarks.harness.workloads import Training, Workload


def skip_unless_runnable(workload: Workload | Training) -> None:
    """Configure JAX for measuring, or have asv skip the workload.

    Raises:
        NotImplementedError: the commit or the machine lacks something that the workload needs. asv
            then skips the benchmark.
    """
    try:
        from myriad import configure, hardware, list_agents, list_envs
    except ImportError as missing:
        raise NotImplementedError(f"this commit can't run {workload.name}: {missing}") from missing
    knows_env = ":" in workload.env or workload.env in list_envs()
    if not knows_env or workload.agent not in list_agents():
        raise NotImplementedError(f"this commit lacks {workload.env} or the agent {workload.agent}")
    configure()
    if hardware.resolve_platform() not in workload.devices:
        raise NotImplementedError(
            f"{workload.name} is declared only for {', '.join(workload.devices)}"
        )


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
