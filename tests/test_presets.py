"""Presets: what they set, what wins over them, and what is refused."""

import dataclasses

import pytest

from myriad import create_config, presets
from myriad.cli import main
from myriad.cli.arguments import parse
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.presets import list_presets, load_preset
from myriad.training.active_settings import active_settings
from myriad.training.config import TrainingConfig
from myriad.training.trainer import environment_record

SHIPPED = [(preset.agent, preset.name, preset.env) for preset in list_presets()]


@pytest.fixture
def files(monkeypatch, tmp_path):
    """Write the only presets, which are PPO's."""
    folder = tmp_path / "presets"
    folder.mkdir()
    monkeypatch.setattr(presets, "FOLDER", folder)

    return (folder / "ppo.toml").write_text


@pytest.mark.parametrize(("agent", "name", "env"), SHIPPED)
def test_every_shipped_preset_sets_what_its_file_says(agent, name, env):
    preset = load_preset(name, agent, env or "cartpole-control")
    config = create_config(env or "cartpole-control", agent, preset=name)
    for field, value in preset.fields.items():
        assert config.value_of(field) == value, field
    assert {"baseline", "optimized", "ultra_fast"} <= {each.name for each in list_presets(agent)}
    if name == "baseline":
        assert config == create_config("cartpole-control", agent)


@pytest.mark.parametrize(
    ("preset", "given", "field", "values"),
    [
        ("total_steps = 4096", {"steps_per_env": 64}, "steps_per_env", (64, 256)),
        ("target_return = 5.0", {"target_return": None}, "target_return", (None, 5.0)),
        # A field is the same under its dotted name.
        ('"agent.rollout_steps" = 8', {"rollout_steps": 32}, "rollout_steps", (32, 8)),
    ],
)
def test_what_you_give_wins_over_a_preset(preset, given, field, values, files):
    files(f"[quick]\n{preset}")
    for more, value in zip((given, {}), values, strict=True):
        config = create_config("cartpole-control", "ppo", preset="quick", **more)
        assert getattr(config, field) == value


def test_a_preset_may_be_for_one_environment(files):
    files("[tuned]\nnum_envs = 8\n[tuned.cartpole-control]\nnum_envs = 32\n[other.snake]")
    assert create_config("cartpole", "ppo", preset="tuned").num_envs == 32
    assert create_config("pendulum-control", "ppo", preset="tuned").num_envs == 8
    with pytest.raises(InvalidArgumentError, match=r"unknown preset .* of ppo on pendulum"):
        create_config("pendulum-control", "ppo", preset="other")
    with pytest.raises(InvalidArgumentError, match="unknown preset 'tuned' of dqn on cart"):
        create_config("cartpole-control", "dqn", preset="tuned")


def test_a_file_of_a_configuration_needs_its_preset_no_more_and_a_run_records_it(files):
    files("[quick]\nnum_envs = 32\neval_rollouts = 4")
    config = create_config("cartpole-control", "ppo", preset="quick")
    assert environment_record(config, active_settings(config))["preset"] == "quick"
    files("[another]\n")
    assert TrainingConfig.from_toml(config.to_toml()) == config


@pytest.mark.parametrize(
    ("tunes", "flags", "chunk"),
    [
        ("true", [], 64),
        ("true", ["--no-auto-tune"], None),
        ("false", ["--auto-tune"], 64),
        ("true", ["--scan-chunk-size=128"], 128),
    ],
)
def test_a_preset_says_whether_the_autotuner_chooses_the_chunk(
    tunes, flags, chunk, files, monkeypatch
):
    files(f"[quick]\nauto_tune = {tunes}")
    asked = []

    def tuned(config):
        asked.append(config)
        return dataclasses.make_dataclass("Answer", ["scan_chunk_size"])(64)

    monkeypatch.setattr("myriad.api.autotune", tuned)
    argv = ["train", "--env=cartpole", "--agent=ppo", "--preset=quick", *flags]
    assert parse(argv).described()[0].given.get("scan_chunk_size") == chunk
    assert len(asked) == (chunk == 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[quick", "is not TOML"),
        ("[mine]", "unknown preset 'quick' of ppo"),
        ("[quick]\nagent.num_epochs = 2", "write options of quick in quotes"),
        ("quick = 3", "quick is refused: .* but got 3"),
        ("[quick]\nnum_env = 3", "unknown field 'num_env'; did you mean 'num_envs'"),
        ('[quick]\nnum_envs = "x"', "preset 'quick': num_envs must be an integer"),
        ('[quick]\n"agent.gamma" = 2.0', "preset 'quick': agent.gamma must be a num"),
    ],
)
def test_a_mistake_in_a_file_is_named(files, text, says):
    files(text)
    with pytest.raises((InvalidArgumentError, UnknownNameError), match=says):
        create_config("cartpole-control", "ppo", preset="quick")


def test_the_command_lists_the_presets_of_one_environment_or_agent(capsys, refused):
    assert main(["presets", "--env", "pendulum-control"]) == 0
    assert "dqn on pendulum-control: Pendulum must have finitely many" in capsys.readouterr().out
    assert "unknown agent with presets 'random'" in refused("presets", "--agent", "random")
