"""From a shell: flags reach the run or are refused, a running run is left alone, Tab completes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from myriad import create_config
from myriad.cli import main, parse
from myriad.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
# Stands in for the process that trains.
HOLD = """
import sys
from pathlib import Path
from myriad.training.run_folder import RunFolder
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


def test_a_run_that_another_process_is_at_is_refused_and_resumes_once_that_is_killed(
    tmp_path, capsys
):
    config = create_config(
        "cartpole", "pid", num_envs=2, steps_per_env=64, eval_frequency=64, eval_rollouts=2
    )
    folder = RunFolder.create(tmp_path / "run", config.resolve().config.to_toml(), {})
    command, env = (
        [sys.executable, "-c", HOLD, str(folder.path)],
        os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        assert main(["train", "--resume", str(folder.path)]) == 2
        new = ["train", "--env", "cartpole", "--agent", "pid", "--run-folder", str(folder.path)]
        assert main(new) == 2
        refusal = (
            f"run folder {folder.path} is in use by another process: "
            "wait until it ends, or name another folder.\n"
        )
        assert capsys.readouterr().err == 2 * refusal
        process.kill()
    assert main(["train", "--resume", str(folder.path)]) == 0
    assert "after 128 steps" in capsys.readouterr().out


def test_a_flag_that_is_zero_wins_over_the_file(tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text(create_config("cartpole", "random", seed=3, target_return=475.0).to_toml())
    config = parse(
        ["train", "--config", str(file), "--seed", "0", "--target-return", "0"]
    ).training()
    assert (config.seed, config.target_return) == (0, 0)
    assert main(["train", "--config", str(file), "--num-envs", "0"]) == 2
    assert capsys.readouterr().err == "num_envs: should be greater than or equal to 1, but got 0.\n"


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", "0"],
        ["--config", "a.toml"],
        ["--run-folder", "other"],
        ["--log-to", "wandb"],
        ["--agent.learning-rate", "1e-3"],
    ],
    ids=lambda flags: flags[0],
)
def test_what_a_resumed_run_would_ignore_is_refused(flags, tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), *flags]) == 2
    assert (
        capsys.readouterr().err
        == f"--resume goes on as the run began, so {flags[0]} can't be given.\n"
    )


def test_a_configuration_that_is_not_text_is_refused_in_a_sentence(tmp_path, capsys):
    (tmp_path / "config.toml").write_bytes(b"\xff")
    assert main(["train", "--config", str(tmp_path / "config.toml")]) == 2
    assert (
        capsys.readouterr().err
        == f"config {tmp_path / 'config.toml'} can't be read: it is not UTF-8.\n"
    )


def test_a_seed_beyond_64_bits_is_refused_in_a_sentence(tmp_path, capsys):
    folder = RunFolder.create(
        tmp_path / "run", create_config("cartpole", "pid").resolve().config.to_toml(), {}
    )
    assert main(["evaluate", str(folder.path), "--seed", "9" * 20]) == 2
    assert capsys.readouterr().err == f"seed must fit in 64 bits, but got {'9' * 20}.\n"


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
