"""What the gate's tests share."""

import sys

import pytest
from _pytest.doctest import DoctestModule

from gate_repository import WORKERS, make_repository
from perfgate.source import environments

FAKE_UV = """#!/bin/sh
''''exec "{python}" "$0" "$@"  # a shell's line, and for Python a text: a path may hold a space '''
import pathlib, sys
named = sys.argv.index("--python") + 1 if "--python" in sys.argv else -1
place = pathlib.Path(sys.argv[-1] if sys.argv[1] == "venv" else sys.argv[named])
log = pathlib.Path(__file__).with_name("log.txt")
log.write_text((log.read_text() if log.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "venv":
    (place / "bin").mkdir(parents=True)
elif sys.argv[1] == "export":
    pathlib.Path(sys.argv[-1]).write_text("")
elif sys.argv[1] == "pip":
    package = sys.argv[sys.argv.index("asv_runner") - 1]
    paths = f"export PYTHONPATH='{{package}}:{workers}'"
    place.write_text(f"#!/bin/sh\\n{{paths}}\\nexec \\"{python}\\" \\"$@\\"\\n")
    place.chmod(0o755)
"""


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
    """Put a `uv` in its place that needs no network, and return the file that notes its calls."""
    tool = tmp_path / "tools" / "uv"
    tool.parent.mkdir()
    tool.write_text(FAKE_UV.format(python=sys.executable, workers=WORKERS))
    tool.chmod(0o755)
    monkeypatch.setattr(environments, "find_uv_bin", lambda: str(tool))
    return tool.with_name("log.txt")
