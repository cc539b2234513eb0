"""What you set outside a command: which source wins, and what is refused and where it was set."""

import json
import os
import pwd
from pathlib import Path

import jax
import pytest

from myriad import create_config, presets, settings
from myriad.cli import main, parse
from myriad.settings import Settings
from myriad.training.config import TrainingConfig

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


def in_environment(folder, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    return name


def in_file(folder, monkeypatch, name, value):
    (folder / ".env").write_text(f"# ours\n{name}={value}\n")
    return f"{name} of .env"


MISSPELT = "MYRIAD_COMPILATON_CACHE"


@pytest.mark.parametrize(
    ("put", "name", "value", "shown"),
    [
        (in_environment, "OPTIMAL_BATCH_SIZE", "8k", "'8k'"),
        (in_file, "OPTIMAL_BATCH_SIZE", "", "''"),
        (in_file, "OPTIMAL_BATCH_SIZE", "0", "got 0"),
        (in_file, "OPTIMAL_BATCH_SIZE", "9" * 5000, "'99999"),
        (in_file, "USE_COMPILE", "ture", "'ture'"),
        (in_file, "USE_TORCH_COMPILE", "2", "'2'"),
        (in_environment, "USE_BF16", "", "''"),
        (in_file, MISSPELT, "off", "did you mean MYRIAD_COMPILATION_CACHE?"),
    ],
)
def test_a_value_that_a_variable_cannot_have_is_refused_with_its_source(
    name, value, shown, put, refused, folder, monkeypatch
):
    source = put(folder, monkeypatch, name, value)
    # `envs` uses no value. It refuses a name that is misspelt.
    for command in ([*CARTPOLE, "ppo", *SMALL], ["doctor"], *[["envs"]] * (name == MISSPELT)):
        said = refused(*command)
        assert said.startswith(source)
        assert shown in said
        assert len(said) < 200


def test_an_unknown_option_to_leave_out_is_refused(refused, folder, monkeypatch):
    in_file(folder, monkeypatch, "MYRIAD_WITHOUT_XLA_OPTIONS", "xla_cpu_fast")
    said = refused(*CARTPOLE, "ppo", *SMALL)
    assert said.startswith("MYRIAD_WITHOUT_XLA_OPTIONS: unknown XLA option 'xla_cpu_fast'")


def test_variables_of_others_pass(folder, monkeypatch):
    (folder / ".env").write_text("MYRIAD_TIER=8k\nUSE_SOMETHING=8k\nOPTIMAL_BATCH=8k\n")
    assert main(["envs"]) == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"USE_BF16=true\n\xff\n", "not UTF-8"),
        (b"A=1\nUSE_BF16 true\n", "from line 2 on"),
        (b'A=1\nMYRIAD_HOME="a\0b"\n', "from line 2 on"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_every_command(content, named, refused, folder):
    (folder / ".env").write_bytes(content)
    for command in (["envs"], [*CARTPOLE, "pid"]):
        said = refused(*command)
        assert ".env" in said
        assert named in said


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="a GPU has cudnn")
def test_cudnn_is_refused_where_there_is_no_gpu(refused, folder):
    (folder / "mine.toml").write_text('[agent_options]\nnetwork = "attention"\nattention = "cudnn"')
    snake = ["train", "--env", "snake", "--agent", "ppo", *SMALL, "--bf16"]
    said = refused(*snake, "--config", "mine.toml")
    assert said.startswith("mine.toml: agent.attention must be")


def test_a_variable_chooses_attention_for_the_network_that_has_it_alone(folder, monkeypatch):
    monkeypatch.setenv("USE_FLASH_ATTENTION", "true")
    snake = ["train", "--env", "snake", "--agent", "ppo"]
    config, sources = parse(snake).described()
    assert "agent.attention" not in config.given
    assert sources["agent.attention"] == "USE_FLASH_ATTENTION"
    for flags, attention in (([], "auto"), (["--no-flash-attention"], "xla")):
        config, _ = parse([*snake, "--agent.network", "attention", *flags]).described()
        assert config.agent_options["attention"] == attention


@pytest.mark.parametrize(
    ("variable", "flag", "dtype"),
    [("true", None, "bfloat16"), ("false", "--bf16", "bfloat16"), ("1", "--no-bf16", "float32")],
)
def test_a_switch_chooses_the_dtype_of_every_network(variable, flag, dtype, folder, monkeypatch):
    monkeypatch.setenv("USE_BF16", variable)
    for agent in ("ppo", "dqn"):
        argv = [*CARTPOLE, agent, *([flag] if flag else [])]
        assert parse(argv).training().agent_options["compute_dtype"] == dtype


LEVELS = ("flag", "config", "environment", ".env", "preset", "default")
SIZES = dict(zip(LEVELS, (8, 16, 32, 64, 256, 128), strict=True))
PPO = ["--env", "cartpole", "--agent", "ppo", "--num-envs", "16", "--rollout-steps", "64"]


@pytest.mark.parametrize("by_number", [False, True])
@pytest.mark.parametrize("winner", LEVELS)
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
    assert 1024 // parse(argv).training().learner.num_minibatches == SIZES[winner]


OWN, ALIAS = "USE_COMPILE", "USE_TORCH_COMPILE"


@pytest.mark.parametrize(
    ("flag", "file", "environment", "of_file", "mode", "source"),
    [
        ("--compile", "off", {OWN: "off"}, {OWN: "off"}, "aot", "--compile"),
        (None, "off", {OWN: "true"}, {OWN: "true"}, "off", "mine.toml"),
        (None, None, {OWN: "off", ALIAS: "true"}, {OWN: "true"}, "cached", OWN),
        # An alias yields to the variable's own name in the same place.
        (None, None, {ALIAS: "off"}, {OWN: "true"}, "cached", ALIAS),
        (None, None, {}, {OWN: "off", ALIAS: "true"}, "cached", f"{OWN} of .env"),
        (None, None, {}, {ALIAS: "off"}, "cached", f"{ALIAS} of .env"),
    ],
)
def test_the_first_source_that_says_whether_to_compile_wins(
    flag, file, environment, of_file, mode, source, folder, monkeypatch
):
    (folder / "mine.toml").write_text(f'compile_mode = "{file}"\n' if file else "")
    (folder / ".env").write_text("".join(f"{name}={v}\n" for name, v in of_file.items()))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    argv = ["train", *PPO, "--steps-per-env", "128", "--config", "mine.toml"]
    config, sources = parse([*argv, *([flag] if flag else [])]).described()
    assert (config.compile_mode, sources["compile_mode"]) == (mode, source)


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
    assert parse([*CARTPOLE, "dqn"]).training().learner.batch_size == 32
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


def test_the_places_of_a_file_are_followed(folder, capsys):
    (folder / ".env").write_text(f"PLACE={folder}\nMYRIAD_HOME=${{PLACE}}/kept\n")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "/kept (can be written)" in said


def test_a_flag_that_says_the_default_still_wins_over_a_file(folder):
    (folder / "mine.toml").write_text(
        'seed = 3\ntarget_return = 475.0\nlog_to = ["tensorboard"]\ncompile_mode = "jit"\n'
    )
    argv = ["train", *PPO, "--config", "mine.toml"]
    config = parse(argv).training()
    assert (config.seed, config.target_return, config.log_to) == (3, 475.0, ["tensorboard"])
    flags = ["--seed", "0", "--target-return", "None", "--compile-mode=aot", "--log-to"]
    config = parse([*argv, *flags]).training()
    assert (config.seed, config.target_return, config.log_to) == (0, None, [])
    assert config.compile_mode == "aot"


def test_trackers_and_their_names_come_from_flags_or_variables(folder, monkeypatch):
    (folder / "mine.toml").write_text('log_to = ["tensorboard", "wandb"]\n')
    for flag, trackers in (("--wandb", ["tensorboard", "wandb"]), ("--no-wandb", ["tensorboard"])):
        config = parse(["train", *PPO, "--config", "mine.toml", flag]).training()
        assert config.log_to == trackers
    monkeypatch.setenv("WANDB_PROJECT", "of-environment")
    (folder / ".env").write_text("WANDB_NAME=of-file\nWANDB_TAGS=a, b\n")
    argv = ["train", *PPO, "--wandb"]
    config = parse(argv).training()
    assert (config.wandb_project, config.wandb_name) == ("of-environment", "of-file")
    assert config.wandb_tags == ["a", "b"]
    config = parse([*argv, "--wandb-project", "mine", "--wandb-tags", "c", "d"]).training()
    assert (config.wandb_project, config.wandb_tags) == ("mine", ["c", "d"])
    assert parse(["train", *PPO]).training().wandb_project is None


@pytest.fixture
def nobody(monkeypatch):
    """Be a user without a home folder, whom the system does not know."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "MYRIAD_HOME", "MYRIAD_COMPILATION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody")
def test_without_a_home_folder_a_training_keeps_no_programs_and_the_autotuner_says_what_to_set(
    tmp_path, refused
):
    assert settings.compilation_cache() is None
    assert "set MYRIAD_HOME" in refused("autotune", "--show")
    run = ["train", "--env", "cartpole", "--agent", "pid", "--num-envs", "2"]
    run += ["--steps-per-env", "64", "--run-folder", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0


@pytest.mark.usefixtures("nobody")
def test_variables_name_the_folders_of_a_user_without_a_home(monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", "/kept")
    assert settings.home() == Path("/kept")
    for name, value, folder in (
        ("XDG_CACHE_HOME", "relative", None),
        ("XDG_CACHE_HOME", "/caches", Path("/caches/myriad/xla")),
        ("MYRIAD_COMPILATION_CACHE", "off", None),
    ):
        monkeypatch.setenv(name, value)
        assert settings.compilation_cache() == folder
