"""From a shell: flags reach the run or are refused, and Tab completes commands."""

import shutil
import subprocess
import warnings

import pytest

from myriad import create_config
from myriad.cli import main, parse
from myriad.errors import InvalidArgumentError
from myriad.training.programs import CompiledTraining
from myriad.training.run_folder import RunFolder

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p myriad | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""

SMALL = ["--env", "cartpole", "--agent", "pid", "--num-envs", "2", "--steps-per-env", "64"]


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["train", *SMALL, "--run-folder="], "--run-folder"),
        (["train", "--resume", ""], "--resume"),
        (["evaluate", ""], "an argument"),
        (["train", "--agent.gamma="], "--agent.gamma"),
    ],
)
def test_an_empty_argument_is_refused_and_not_taken_for_the_current_folder(
    argv, flag, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith(f"{flag} is empty")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_that_fails_early_leaves_nothing_in_the_way_of_the_next(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise InvalidArgumentError("this program can't be compiled.")

    command = ["train", *SMALL, "--run-folder", str(tmp_path / "run"), "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr(CompiledTraining, "compile", fail)
        assert main(command) == 2
    assert not (tmp_path / "run").exists()
    assert main(command) == 0


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


def test_a_configuration_that_is_no_file_of_text_is_refused(tmp_path, capsys):
    (tmp_path / "latin").write_bytes(b"env = '\xe9'")
    for name, why in (("", "not a file"), ("latin", "not UTF-8"), ("gone", "No such file")):
        assert main(["train", "--config", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{tmp_path / name} can't be read: ")
        assert why in said


def test_a_flag_that_is_zero_wins_over_the_file(tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text(create_config("cartpole", "random", seed=3, target_return=475.0).to_toml())
    config = parse(
        ["train", "--config", str(file), "--seed", "0", "--target-return", "0"]
    ).training()
    assert (config.seed, config.target_return) == (0, 0)
    assert main(["train", "--config", str(file), "--num-envs", "0"]) == 2
    assert "--num-envs must be an integer from 1 to" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--seed=0", "--config=a.toml", "--agent.learning-rate=1e-3"])
def test_what_a_resumed_run_would_ignore_is_refused(flag, tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), flag]) == 2
    said = capsys.readouterr().err
    assert said.startswith("--resume continues a run")
    assert flag.partition("=")[0] in said


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
