"""From a shell: flags reach the run or are refused, and Tab completes commands."""

import shutil
import subprocess
import warnings

import pytest

from myriad.cli import main
from myriad.training.run_folder import RunFolder

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p myriad | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""

SMALL = ["--env", "cartpole", "--agent", "pid", "--num-envs", "2", "--steps-per-env", "64"]


@pytest.mark.slow
def test_a_run_whose_file_lacks_a_field_goes_on_and_the_field_is_named(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert main(["train", *SMALL, "--run-folder", str(folder.path), "--quiet"]) == 0
    file = folder.path / "config.toml"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["train", "--resume", str(folder.path)]) == 0
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "gravity" not in line))
    with pytest.warns(UserWarning, match=r"config.toml, of another .* nothing of env\.gravity:"):
        assert main(["train", "--resume", str(folder.path)]) == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_tab_completes_commands_and_options(tmp_path):
    script = tmp_path / "myriad"
    with pytest.raises(SystemExit) as end:
        main(["--tyro-write-completion", "bash", str(script)])
    assert not end.value.code

    def complete(*words):
        command = ["bash", "-c", COMPLETE, "bash", str(script), "myriad", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stdout.split()

    assert complete("tr") == ["train"]
    assert complete("train", "--age") == ["--agent"]
    assert complete("train", "--agent.learning-rate", "1e-3", "--eval-f") == ["--eval-frequency"]
    assert complete("evaluate", "--e") == ["--episodes"]
