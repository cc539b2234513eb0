"""What keeps the benchmarks' tests short: children that compile cheaply, or none at all."""

import json
import os
import queue
from functools import partial

import jax
import pytest

from benchmarks.harness import alternation, workloads
from benchmarks.harness.registry import library_of
from benchmarks.harness.worker import ChildError, failure_of
from benchmarks.harness.workloads import Declaration, Training
from benchmarks.libraries import __main__ as libraries
from benchmarks.libraries import server
from myriad.errors import MyriadError


@pytest.fixture(scope="package", autouse=True)
def _children_compile_in_half_the_time():
    """Let LLVM optimise nothing in child processes: these tests ask what they say, not how fast."""
    jax.devices()  # this process's own XLA has read its options now
    with pytest.MonkeyPatch.context() as patch:
        flags = os.environ.get("XLA_FLAGS", "")
        patch.setenv("XLA_FLAGS", f"{flags} --xla_backend_optimization_level=0")
        yield


class InThisProcess:
    """A library that answers as its process would, without importing JAX and it anew."""

    def __init__(self, name):
        self._requests = queue.SimpleQueue()
        self._replies = server.replies_to(
            iter(self._requests.get, None),
            partial(libraries.hello, name),
            partial(libraries.make_stepper, library_of(name)),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self._replies.close()

    def ask(self, request, timeout_s):
        self._requests.put(json.dumps(request))
        return self.reply(timeout_s)

    def reply(self, timeout_s):
        try:
            return next(self._replies)
        except (MyriadError, NotImplementedError, ImportError, RuntimeError) as error:
            raise ChildError(**failure_of(error, (MyriadError,))) from error


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


@pytest.fixture
def libraries_in_this_process(monkeypatch):
    """Run libraries in the test's process; test_alternation.py and others start real ones."""
    monkeypatch.setattr(alternation, "LibraryProcess", InThisProcess)
