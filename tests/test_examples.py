"""The scripts in examples/ run as they stand; a page's tests run those it shows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_performance_demonstration_runs_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path))
    command = [sys.executable, str(ROOT / "examples" / "10_performance_demo.py"), "--quick"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "1,000 environments:" in done.stdout
    assert "million steps/s (" in done.stdout
    assert "best" in done.stdout
    assert "PPO reached 475 after" in done.stdout
