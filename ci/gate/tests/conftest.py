"""What the gate's tests share."""

import signal

import pytest
from _pytest.doctest import DoctestModule

from gate_repository import make_repository
from perfgate.options import STOPPING
from perfgate.source import environments

collect_ignore_glob = ["fixtures/*"]  # material for tests, and none of it a test


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Leave out the doctests of test files, whose collector hides that a file can't be imported."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


@pytest.fixture
def no_signal_is_ignored():
    """Undo what `nohup` and a shell's background do to the signals of a test run."""
    numbers = (*STOPPING, signal.SIGQUIT)
    before = {each: signal.signal(each, signal.default_int_handler) for each in numbers}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture
def fake_uv(tmp_path, monkeypatch):
    """Put a `uv` in its place that builds nothing, and return the file that notes its calls."""
    tool = tmp_path / "tools" / "uv"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$@" >> "${0%/*}/log.txt"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(environments, "find_uv_bin", lambda: str(tool))
    return tool.with_name("log.txt")
