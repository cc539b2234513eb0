import pytest

from gate_repository import make_repository, write_fake_uv
from perfgate.source import environments


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


@pytest.fixture
def fake_uv(tmp_path, monkeypatch):
    log = write_fake_uv(tmp_path / "tools")
    monkeypatch.setattr(environments, "find_uv_bin", lambda: str(log.with_name("uv")))
    return log
