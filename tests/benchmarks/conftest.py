"""What keeps the benchmarks' tests short: children that compile cheaply, small workloads."""

import os

import jax
import pytest

from benchmarks.harness import workloads
from benchmarks.harness.workloads import Declaration, Training


@pytest.fixture(scope="package", autouse=True)
def _children_compile_in_half_the_time():
    """Let LLVM optimise nothing in child processes: these tests ask what they say, not how fast."""
    jax.devices()  # this process's own XLA has read its options now
    with pytest.MonkeyPatch.context() as patch:
        flags = os.environ.get("XLA_FLAGS", "")
        patch.setenv("XLA_FLAGS", f"{flags} --xla_backend_optimization_level=0")
        yield


@pytest.fixture
def declare(monkeypatch):
    """Take what a test declares for what suite.toml does."""

    def take(*declared):
        by_suite = {}
        for each in declared:
            by_suite.setdefault(each.suite, {})[each.name] = each
        trains = isinstance(declared[0], Training)
        declaration = Declaration({}, trainings=by_suite) if trains else Declaration(by_suite)
        monkeypatch.setattr(workloads, "load", lambda: declaration)

    return take
