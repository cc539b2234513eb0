"""What you set outside a command: which source wins, what is refused, and what the doctor says."""

import json
import os
import pwd
import re
import sys
from pathlib import Path

import pytest

from myriad import create_config, presets, settings
from myriad.cli import main
from myriad.cli.arguments import parse
from myriad.settings import Settings
from myriad.training.config import TrainingConfig
from tests.child_processes import python

SMALL = ["--num-envs", "2", "--steps-per-env", "64", "--eval-rollouts", "2"]
SMALL += ["--eval-max-steps", "8"]
CARTPOLE = ["train", "--env", "cartpole", "--agent"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, without a setting in the environment."""
    before = dict(os.environ)
    for setting in Settings.table().values():
        for name in setting.names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", before["MYRIAD_COMPILATION_CACHE"])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    # A command exports what the file says of places.
    os.environ.pop("MYRIAD_HOME", None)
    os.environ.pop("MYRIAD_WITHOUT_XLA_OPTIONS", None)


@pytest.mark.parametrize(
    ("place", "text", "says"),
    [
        ("environment", "OPTIMAL_BATCH_SIZE=8k", "^OPTIMAL_BATCH_SIZE.*'8k'"),
        ("environment", "USE_BF16=", "^USE_BF16.*''"),
        (".env", "OPTIMAL_BATCH_SIZE=0", "^OPTIMAL_BATCH_SIZE of .env.*got 0"),
        (".env", "OPTIMAL_BATCH_SIZE=" + "9" * 5000, "^OPTIMAL_BATCH_SIZE of .env.*'99999"),
        (".env", "USE_COMPILE=ture", "^USE_COMPILE of .env.*'ture'"),
        (".env", "USE_TORCH_COMPILE=2", "^USE_TORCH_COMPILE of .env.*'2'"),
        (".env", "MYRIAD_COMPILATON_CACHE=off", "of .env.*did you mean MYRIAD_COMPILATION_CACHE?"),
        (".env", "MYRIAD_WITHOUT_XLA_OPTIONS=xla_cpu_fast", "unknown XLA option 'xla_cpu_fast'"),
        (".env", "USE_BF16=true\n\udcff", ".env.*not UTF-8"),
        (".env", "A=1\nUSE_BF16 true", ".env.*from line 2 on"),
        (".env", 'A=1\nMYRIAD_HOME="a\0b"', ".env.*from line 2 on"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_its_source(
    place, text, says, refused, folder, monkeypatch
):
    if place == "environment":
        monkeypatch.setenv(*text.split("="))
    else:
        (folder / place).write_bytes(text.encode(errors="surrogateescape"))
    said = refused(*CARTPOLE, "ppo", *SMALL)
    assert re.search(says, said)
    assert len(said) < 200


def test_a_file_may_set_places_and_variables_of_others(folder, capsys):
    others = "MYRIAD_TIER=8k\nUSE_SOMETHING=8k\nOPTIMAL_BATCH=8k\n"
    (folder / ".env").write_text(f"{others}PLACE={folder}\nMYRIAD_HOME=${{PLACE}}/kept\n")
    assert main(["doctor"]) == 0
    assert "/kept (can be written)" in capsys.readouterr().out


LEVELS = ("flag", "config", "environment", ".env", "preset", "default")
SIZES = dict(zip(LEVELS, (8, 16, 32, 64, 256, 128), strict=True))
PPO = ["--env", "cartpole", "--agent", "ppo", "--num-envs", "16", "--rollout-steps", "64"]


@pytest.mark.parametrize(
    ("winner", "by_number"),
    [*((level, False) for level in LEVELS), ("flag", True), ("config", True)],
)
def test_the_first_of_six_sources_that_says_the_batch_size_wins(
    winner, by_number, folder, monkeypatch
):
    """Whether a flag or a file says it by rows or by the number of minibatches."""
    given_by = LEVELS[LEVELS.index(winner) :]
    (folder / "ppo.toml").write_text('[mine]\n"agent.num_minibatches" = 4\n')
    config = "[agent_options]\nnum_minibatches = 64" if by_number else "batch_size = 16"
    (folder / "mine.toml").write_text(config if "config" in given_by else "")
    (folder / ".env").write_text("OPTIMAL_BATCH_SIZE=64\n" if ".env" in given_by else "")
    flags = ["--agent.num-minibatches", "128"] if by_number else ["--batch-size", "8"]
    argv = ["train", *PPO, "--config", "mine.toml", *(flags if "flag" in given_by else [])]
    argv += ["--preset", "mine"] if "preset" in given_by else []
    monkeypatch.setattr(presets, "FOLDER", folder)
    if "environment" in given_by:
        monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "32")
    assert 1024 // parse(argv).described()[0].learner.num_minibatches == SIZES[winner]


OWN, ALIAS = "USE_COMPILE", "USE_TORCH_COMPILE"
BF16, FLASH = "USE_BF16", "USE_FLASH_ATTENTION"
ATTENDS = "--env=snake --agent.network=attention"
ASKED, DENIED = "--flash-attention", "--no-flash-attention"
COMPILE, DTYPE, ATTENTION = "compile_mode", "agent.compute_dtype", "agent.attention"


@pytest.mark.parametrize(
    ("flags", "environment", "of_file", "field", "value", "source"),
    [
        ("--compile", {OWN: "off"}, {OWN: "off"}, COMPILE, "aot", "--compile"),
        ("", {OWN: "off", ALIAS: "true"}, {OWN: "true"}, COMPILE, "cached", OWN),
        # An alias yields to the variable's own name in the same place.
        ("", {ALIAS: "off"}, {OWN: "true"}, COMPILE, "cached", ALIAS),
        ("", {BF16: "true"}, {}, DTYPE, "bfloat16", BF16),
        ("--agent=dqn", {}, {BF16: "1"}, DTYPE, "bfloat16", f"{BF16} of .env"),
        ("--bf16", {BF16: "false"}, {}, DTYPE, "bfloat16", "--bf16"),
        ("--no-bf16", {BF16: "1"}, {}, DTYPE, "float32", "--no-bf16"),
        # It is for the network that has it alone.
        ("", {FLASH: "true"}, {}, ATTENTION, None, FLASH),
        (ATTENDS, {FLASH: "false"}, {}, ATTENTION, "xla", FLASH),
        # Which one it means depends on the dtype and the device.
        (f"{ATTENDS} {ASKED}", {}, {}, ATTENTION, "auto", ASKED),
        (f"{ATTENDS} {DENIED}", {FLASH: "true"}, {}, ATTENTION, "xla", DENIED),
    ],
)
def test_the_first_source_that_says_a_switch_wins(
    flags, environment, of_file, field, value, source, folder, monkeypatch
):
    (folder / ".env").write_text("".join(f"{name}={v}\n" for name, v in of_file.items()))
    for name, given in environment.items():
        monkeypatch.setenv(name, given)
    argv = ["train", "--env=cartpole", "--agent=ppo", "--steps-per-env=128", *flags.split()]
    config, sources = parse(argv).described()
    assert (config.given.get(field), sources[field]) == (value, source)


def test_a_call_takes_what_it_is_given_wherever_it_is_called(folder, monkeypatch):
    expected = create_config("cartpole", "ppo")
    (folder / ".env").write_text("OPTIMAL_BATCH_SIZE=8k\nUSE_COMPILE=ture\n")
    monkeypatch.setenv("USE_BF16", "ture")
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "64")
    assert create_config("cartpole", "ppo") == expected
    assert expected.compile_mode == "aot"


@pytest.mark.slow
def test_a_run_records_where_a_setting_came_from_and_goes_on_without_reading_it_again(
    folder, monkeypatch, refused
):
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "32")
    assert parse([*CARTPOLE, "dqn"]).described()[0].learner.batch_size == 32
    assert main([*CARTPOLE, "ppo", *SMALL, "--run-folder", "run", "--quiet"]) == 0
    record = json.loads(Path("run/environment.json").read_text())
    batch = next(each for each in record["settings"] if each["name"] == "batch")
    assert (batch["value"], batch["source"]) == ("32 rows", "OPTIMAL_BATCH_SIZE")
    before = Path("run/config.toml").read_text()
    learner = TrainingConfig.from_toml(before).learner
    assert 2 * learner.rollout_steps // learner.num_minibatches == 32
    monkeypatch.setenv("OPTIMAL_BATCH_SIZE", "8k")
    (folder / ".env").write_text("USE_COMPILE=ture\nUSE_BF16=\n")
    assert main(["train", "--resume", "run"]) == 0
    assert Path("run/config.toml").read_text() == before
    said = refused("train", "--resume", "run", "--no-compile")
    assert "leave out --no-compile" in said


def test_a_flag_that_says_the_default_still_wins_over_a_file(folder):
    (folder / "mine.toml").write_text(
        'seed = 3\ntarget_return = 475.0\nlog_to = ["tensorboard"]\ncompile_mode = "jit"\n'
    )
    argv = ["train", *PPO, "--config", "mine.toml"]
    config = parse(argv).described()[0]
    assert (config.seed, config.target_return, config.log_to) == (3, 475.0, ["tensorboard"])
    flags = ["--seed", "0", "--target-return", "None", "--compile-mode=aot", "--log-to"]
    config = parse([*argv, *flags]).described()[0]
    assert (config.seed, config.target_return, config.log_to) == (0, None, [])
    assert config.compile_mode == "aot"


def test_trackers_and_their_names_come_from_flags_or_variables(folder, monkeypatch):
    (folder / "mine.toml").write_text('log_to = ["tensorboard", "wandb"]\n')
    for flag, trackers in (("--wandb", ["tensorboard", "wandb"]), ("--no-wandb", ["tensorboard"])):
        config = parse(["train", *PPO, "--config", "mine.toml", flag]).described()[0]
        assert config.log_to == trackers
    monkeypatch.setenv("WANDB_PROJECT", "of-environment")
    (folder / ".env").write_text("WANDB_NAME=of-file\nWANDB_TAGS=a, b\n")
    argv = ["train", *PPO, "--wandb"]
    config = parse(argv).described()[0]
    assert (config.wandb_project, config.wandb_name) == ("of-environment", "of-file")
    assert config.wandb_tags == ["a", "b"]
    config = parse([*argv, "--wandb-project", "mine", "--wandb-tags", "c", "d"]).described()[0]
    assert (config.wandb_project, config.wandb_tags) == ("mine", ["c", "d"])
    assert parse(["train", *PPO]).described()[0].wandb_project is None


@pytest.mark.slow
def test_a_user_without_a_home_folder_names_folders_or_trains_without(
    tmp_path, monkeypatch, refused
):
    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "MYRIAD_HOME", "MYRIAD_COMPILATION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert settings.compilation_cache() is None
    assert "set MYRIAD_HOME" in refused("autotune", "--show")
    run = [*CARTPOLE, "pid", *SMALL, "--run-folder", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0
    monkeypatch.setenv("MYRIAD_HOME", "/kept")
    assert settings.home() == Path("/kept")
    for name, value, folder in (
        ("XDG_CACHE_HOME", "relative", None),
        ("XDG_CACHE_HOME", "/caches", Path("/caches/myriad/xla")),
        ("MYRIAD_COMPILATION_CACHE", "off", None),
    ):
        monkeypatch.setenv(name, value)
        assert settings.compilation_cache() == folder


@pytest.fixture
def doctor(folder, monkeypatch, capsys):
    """Return the exit code of the command and what it prints."""
    monkeypatch.setenv("MYRIAD_HOME", str(folder / "home"))

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
    for name, setting in Settings.table().items():
        if name in ("compile", "flash_attention"):
            assert found[source if name == "compile" else flash][0] == str(name != "compile")
        else:
            assert found[setting.variable][1] == setting.meaning
    assert (found["OPTIMAL_BATCH_SIZE"][0], found["USE_BF16"][0]) == ("64", "not set")


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


COMMANDS = ["train --env=cartpole --agent=ppo", "doctor"]


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
    for command in commands:
        is_doctor = command == "doctor"
        words = ["-m", "myriad", *command.split()]
        done = python(*words, cwd=tmp_path, code=1 if is_doctor else 2, **{variable: value})
        assert done.stderr.count("\n") <= 3
        assert says in (done.stdout if is_doctor else done.stderr)
        assert ("problem    " in done.stdout and "devices    " in done.stdout) == is_doctor
