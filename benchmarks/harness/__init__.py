"""What every suite stands on: the declared workloads, results, child processes and timing."""
