"""What every asv suite asks first: can this commit run the workload on this machine?"""

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
