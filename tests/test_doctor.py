"""`myriad doctor` says what is set, where, what acts, and what can't be had."""

import re
import sys

import pytest

from myriad import create_config, train_and_evaluate
from myriad.cli import main
from myriad.settings import Settings
from tests.child_processes import python


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Return the exit code of the command and what it prints."""
    for setting in Settings.table().values():
        for name in setting.names:
            if name != "MYRIAD_COMPILATION_CACHE":
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def ask(*argv, command="doctor"):
        capsys.readouterr()
        code = main([command, *argv])
        return code, capsys.readouterr().out

    return ask


def rows(text):
    """Return the cells of each line of the tables by the first of them."""
    lines = [re.split(r" {2,}", line) for line in text.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_every_setting_is_shown_with_its_value_and_source(doctor, monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "64")
    (tmp_path / ".env").write_text("USE_TORCH_COMPILE=no\nUSE_FLASH_ATTENTION=true\n")
    (tmp_path / "mine.toml").write_text("seed = 3\nnum_envs = 16\n")
    words = ("--config", "mine.toml", "--env", "snake", "--agent", "ppo")
    code, text = doctor(*words, command="settings")
    assert code == 0
    assert text.startswith("settings of ppo on snake\n")
    found = rows(text)
    reason = "1,024 rows in 16 minibatches"
    assert found["batch"] == ["64 rows", "OPTIMAL_BATCH_SIZE", "yes", reason, "--batch-size"]
    reason = "programs compile at their first call; the cache keeps them, unless it is off"
    source = "USE_TORCH_COMPILE of .env"
    assert found["compile"] == ["cached", source, "yes", reason, "--compile-mode"]
    # It is inactive without cudnn, which is no problem.
    flash = "USE_FLASH_ATTENTION of .env"
    assert found["attention"][:3] == ["none", flash, "no"]
    _, attends = doctor(*words, "--agent.network=attention")
    assert rows(attends)["attention"][:3] == ["xla", flash, "no"]
    for name, setting in Settings.table().items():
        if name in ("compile", "flash_attention"):
            assert found[source if name == "compile" else flash][0] == str(name != "compile")
        else:
            assert found[setting.variable][1] == setting.meaning
    assert (found["OPTIMAL_BATCH_SIZE"][0], found["USE_BF16"][0]) == ("64", "not set")


def test_the_machine_its_versions_and_its_folders_are_shown(doctor, tmp_path):
    code, text = doctor()
    assert code == 0
    for line in (
        r"machine    .+, \d+ cores, .+ GiB of memory \(.+ GiB free\)",
        r"devices    2 x cpu",
        r"versions   python .+, jax .+, flax .+",
        r"configured yes",
        rf"kept in    {tmp_path / 'home'} \(can be written\)",
    ):
        assert re.search(rf"^{line}$", text, re.MULTILINE), line
    assert not (tmp_path / "home").exists()
    assert "problem" not in text


def test_a_library_that_is_not_installed_is_a_problem(doctor, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, text = doctor("--wandb")
    assert code == 1
    assert rows(text)["trackers"][:3] == ["wandb", "--wandb", "no"]
    says = "--wandb asks for trackers: log_to 'wandb' needs wandb, which can't be imported: pip"
    assert f"problem    {says}" in text
    assert doctor("--no-wandb")[0] == 0


@pytest.mark.parametrize(
    ("variable", "value", "flags", "problem"),
    [
        ("OPTIMAL_BATCH_SIZE", "33", [], "OPTIMAL_BATCH_SIZE asks for batch: its rows don't fit"),
        ("OPTIMAL_BATCH_SIZE", "1", ["--agent", "pid"], "OPTIMAL_BATCH_SIZE asks for batch:"),
        ("MYRIAD_HOME", "/proc/x", [], "/proc/x can't be written"),
        ("MYRIAD_COMPILATION_CACHE", "x" * 300, [], "File name too long"),
        # What is turned off is no problem.
        ("MYRIAD_COMPILATION_CACHE", "off", ["--agent", "pid"], None),
        ("USE_BF16", "false", ["--agent", "pid"], None),
    ],
)
def test_what_cannot_be_had_is_a_problem_beside_the_rest(
    variable, value, flags, problem, doctor, monkeypatch
):
    monkeypatch.setenv(variable, value)
    code, text = doctor(*flags)
    assert code == (problem is not None)
    assert "machine    " in text
    if problem:
        assert re.search(f"^problem    .*{re.escape(problem)}", text, re.MULTILINE)


COMMANDS = ["train --env=cartpole --agent=ppo", "evaluate run", "doctor"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "commands", "says"),
    [
        ("JAX_PLATFORMS", "cuda", COMMANDS, "finds no such device on this machine: JAX_PLATFORMS="),
        ("JAX_TRANSFER_GUARD", "disallow", COMMANDS[-1:], "JAX_TRANSFER_GUARD is disallow"),
        ("JAX_PLATFORM_NAME", "gpu", COMMANDS[:1], "JAX_PLATFORM_NAME=gpu; unset it or choose cpu"),
    ],
)
def test_what_jax_s_variables_forbid_is_one_sentence(variable, value, commands, says, tmp_path):
    sizes = {"num_envs": 2, "steps_per_env": 8, "eval_rollouts": 2}
    train_and_evaluate(create_config("cartpole", "pid", **sizes), tmp_path / "run", quiet=True)
    for command in commands:
        is_doctor = command == "doctor"
        words = ["-m", "myriad", *command.split()]
        done = python(*words, cwd=tmp_path, code=1 if is_doctor else 2, **{variable: value})
        assert done.stderr.count("\n") <= 3
        assert says in (done.stdout if is_doctor else done.stderr)
        assert ("problem    " in done.stdout and "devices    " in done.stdout) == is_doctor
