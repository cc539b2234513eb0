"""What every asv suite asks first: can this commit run the workload on this machine?"""

import os

from benchmarks.harness.workloads import Training, Workload


def skip_unless_runnable(workload: Workload | Training) -> None:
    """Configure JAX for measuring, or have asv skip the workload.

    Raises:
        NotImplementedError: the commit or the machine lacks what the workload needs; asv then skips
            the benchmark.
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
            f"{workload.name} is declared for {', '.join(workload.devices)} alone"
        )


def skip_unless_several_cores() -> None:
    """Have asv skip what measures how work spreads over the cores of a CPU.

    Raises:
        NotImplementedError: JAX computes elsewhere, or this process may use one core only.
    """
    from myriad import hardware

    if hardware.resolve_platform() != "cpu":
        raise NotImplementedError("only a CPU has cores to spread work over")
    # The operating system says it, not Myriad: a commit that no longer sees the second core must
    # be timed.
    if len(os.sched_getaffinity(0)) < 2:
        raise NotImplementedError("this process may use one core only")
