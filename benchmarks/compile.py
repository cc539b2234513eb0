"""Measure the seconds to compile, and the sizes of programs. This is only an asv suite.

Every compilation runs in a new process, because an earlier one would speed it up.
"""

from typing import ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.process import Reply
from benchmarks.harness.programs import compile_in_child, request_of
from benchmarks.harness.workload import Workload


class Compile(AsvSuite):
    """Seconds to compile in a new process without a cache, and how large the programs are."""

    suite = "compile"
    params: ClassVar = names_of(suite)
    version = "2"
    timeout = 600
    launched: ClassVar[dict[str, Reply]] = {}  # one launch for all benchmarks of a workload

    def prepare(self, declared: Workload) -> None:
        self.request = request_of(declared)

    def track_compile_s(self, workload: str) -> float:
        """Return what one launch took; the gate launches again where a value is suspect."""
        return self.launch(workload)["compile_s"]

    def track_instructions(self, workload: str) -> int:
        """Return the instructions of the optimised programs."""
        return self.launch(workload)["instructions"]

    def launch(self, workload: str) -> Reply:
        """Compile in a child, once in this process."""
        if workload not in self.launched:
            self.launched[workload] = compile_in_child(self.request)
        return self.launched[workload]

    track_compile_s.unit = "seconds"  # type: ignore[attr-defined]
    track_instructions.unit = "instructions"  # type: ignore[attr-defined]
