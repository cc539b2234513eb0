"""What every asv suite asks first: can this commit, on this machine, run the workload at all?"""

from benchmarks.harness.workloads import Training, Workload


def skip_unless_runnable(workload: Workload | Training) -> None:
    """Configure JAX for measuring, or have asv skip the workload.

    Raises:
        NotImplementedError: the commit or the machine lacks what the workload needs, so asv reports
            no figure.
    """
    try:
        from myriad import configure, hardware, list_agents, list_envs
    except ImportError as missing:
        raise NotImplementedError(f"this commit can't run {workload.name}: {missing}") from missing
    if (
        ":" not in workload.env and workload.env not in list_envs()
    ) or workload.agent not in list_agents():
        raise NotImplementedError(f"this commit lacks {workload.env} or the agent {workload.agent}")
    configure()
    if hardware.resolve_platform() not in workload.devices:
        raise NotImplementedError(
            f"{workload.name} is declared for {', '.join(workload.devices)} alone"
        )
