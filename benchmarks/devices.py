"""Time rollouts on the devices of all cores. This is only an asv suite.

`throughput.py --devices` measures how they and trainings scale.
"""

from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, skip_unless_several_cores
from benchmarks.harness.device_scaling import Point, device_counts, ready
from benchmarks.harness.workload import Workload


class SeveralCores(AsvSuite):
    """Seconds of a call that the devices of all cores share; gate.toml unpins it."""

    suite = "devices"
    params: ClassVar = ["cartpole-rollout"]
    version = "3"  # of one chunk; before, each side found by its clock how many its calls had

    def prepare(self, declared: Workload) -> None:
        skip_unless_several_cores()
        from myriad.host import usable_cores

        most = max(device_counts(usable_cores()))
        self.built = ready(declared, Point(most, declared.num_envs))

    def time_call(self, workload: str) -> None:
        """Step, and wait for every device."""
        self.built.run(self.built.scan_chunk_size)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk, for the gate."""
        return self.built.updates
