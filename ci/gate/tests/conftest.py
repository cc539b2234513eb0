"""What the gate's tests share."""

import pytest
from _pytest.doctest import DoctestModule

from gate_repository import make_repository, write_fake_uv
from perfgate.source import environments


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Leave out the doctests of test files, whose collector hides that a file can't be imported."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


@pytest.fixture
def fake_uv(tmp_path, monkeypatch):
    log = write_fake_uv(tmp_path / "tools")
    monkeypatch.setattr(environments, "find_uv_bin", lambda: str(log.with_name("uv")))
    return log
