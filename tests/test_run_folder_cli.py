"""From a shell: a run that is going on is left alone, and Tab completes the command line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from myriad import create_config
from myriad.cli import main
from myriad.tracking import RunFolder

ROOT = Path(__file__).parents[1]
# Stands in for the process that trains.
HOLD = """
import sys
from pathlib import Path
from myriad.tracking import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("in", flush=True)
    sys.stdin.read()
"""
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p myriad | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(autouse=True)
def _away_from_the_users_cache(monkeypatch):
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")


def test_a_run_that_another_process_is_at_is_refused_and_resumes_once_that_is_killed(tmp_path, capsys):
    config = create_config("cartpole", "pid", num_envs=2, steps_per_env=64, eval_frequency=64, eval_rollouts=2)
    folder = RunFolder.create(tmp_path / "run", config.resolve().to_toml(), {})
    command, env = [sys.executable, "-c", HOLD, str(folder.path)], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        assert main(["train", "--resume", str(folder.path)]) == 2
        new = ["train", "--env", "cartpole", "--agent", "pid", "--run-folder", str(folder.path)]
        assert main(new) == 2
        refusal = f"run folder {folder.path} is in use by another process: wait for its end, or name another folder.\n"
        assert capsys.readouterr().err == 2 * refusal
        process.kill()
    assert main(["train", "--resume", str(folder.path)]) == 0
    assert "after 128 steps" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_tab_completes_commands_and_options(tmp_path):
    script = tmp_path / "myriad"
    with pytest.raises(SystemExit) as end:
        main(["--tyro-write-completion", "bash", str(script)])
    assert not end.value.code

    def complete(*words):
        command = ["bash", "-c", COMPLETE, "bash", str(script), "myriad", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()

    assert complete("tr") == ["train"]
    assert complete("train", "--age") == ["--agent"]
    assert complete("train", "--agent.learning-rate", "1e-3", "--eval-f") == ["--eval-frequency"]
    assert complete("evaluate", "--e") == ["--episodes"]
