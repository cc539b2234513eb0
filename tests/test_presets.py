"""Presets: what they set, what wins over them, and what is refused."""

import dataclasses

import pytest

from myriad import create_config, presets, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.presets import list_presets, load_preset
from myriad.training.active_settings import active_settings
from myriad.training.config import TrainingConfig
from myriad.training.trainer import environment_record

SHIPPED = [(preset.agent, preset.name, preset.env) for preset in list_presets()]


@pytest.fixture
def files(monkeypatch, tmp_path):
    """A folder of presets of the test's own."""
    folder = tmp_path / "presets"
    folder.mkdir()
    monkeypatch.setattr(presets, "FOLDER", folder)

    def write(**texts):
        for agent, text in texts.items():
            (folder / f"{agent}.toml").write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize(("agent", "name", "env"), SHIPPED)
def test_every_shipped_preset_sets_what_its_file_says(agent, name, env):
    preset = load_preset(name, agent, env or "cartpole-control")
    config = create_config(env or "cartpole-control", agent, preset=name)
    for field, value in preset.fields.items():
        assert config.value_of(field) == value, field


@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_every_learner_has_the_presets_of_the_guide(agent):
    assert {"baseline", "optimized", "ultra_fast"} <= {p.name for p in list_presets(agent)}
    baseline = create_config("cartpole-control", agent, preset="baseline")
    plain = create_config("cartpole-control", agent)
    assert baseline == plain


def test_a_length_that_you_give_replaces_that_of_a_preset(files):
    files(ppo="[quick]\ntotal_steps = 4096")
    config = create_config("cartpole-control", "ppo", preset="quick", steps_per_env=64)
    assert config.steps_per_env == 64
    config = create_config("cartpole-control", "ppo", preset="quick")
    assert config.steps_per_env == 256


def test_a_preset_may_be_for_one_environment(files):
    files(ppo="[tuned]\nnum_envs = 8\n[tuned.snake]\nnum_envs = 32\n[other.snake]\nnum_envs = 4")
    assert create_config("snake", "ppo", preset="tuned").num_envs == 32
    assert create_config("pendulum-control", "ppo", preset="tuned").num_envs == 8
    files(ppo="[tuned.cartpole-control]\nnum_envs = 32\n[other.snake]\nnum_envs = 4")
    assert create_config("cartpole", "ppo", preset="tuned").num_envs == 32
    with pytest.raises(InvalidArgumentError, match=r"unknown preset .* of ppo on pendulum"):
        create_config("pendulum-control", "ppo", preset="other")


def test_the_file_of_a_configuration_needs_its_preset_no_more(files):
    files(ppo='[quick]\nnum_envs = 32\neval_rollouts = 4\ntarget_return = "none"')
    config = create_config("cartpole-control", "ppo", preset="quick")
    text = config.to_toml()
    files(ppo="[another]\n")
    assert TrainingConfig.from_toml(text) == config


def test_a_target_of_none_wins_over_that_of_a_preset(files):
    files(ppo="[quick]\ntarget_return = 5.0")
    config = create_config("cartpole-control", "ppo", preset="quick", target_return=None)
    assert config.target_return is None
    config = create_config("cartpole-control", "ppo", preset="quick")
    assert config.target_return == 5.0


def test_a_field_is_the_same_under_its_dotted_name(files):
    files(ppo='[quick]\n"agent.rollout_steps" = 8')
    given = create_config("cartpole-control", "ppo", preset="quick", rollout_steps=32)
    assert given.rollout_steps == 32
    given = create_config("cartpole-control", "ppo", preset="quick", **{"agent.rollout_steps": 16})
    assert given.rollout_steps == 16
    left_open = create_config("cartpole-control", "ppo", preset="quick")
    assert left_open.value_of("agent.rollout_steps") == left_open.rollout_steps == 8


def test_the_record_of_a_run_names_its_preset(files):
    files(ppo="[quick]\nnum_envs = 4")
    config = create_config(
        "cartpole-control", "ppo", preset="quick", **{"agent.compute_dtype": "bfloat16"}
    )
    record = environment_record(config, active_settings(config))
    assert (record["preset"], record["compute_dtype"]) == ("quick", "bfloat16")
    assert "preset" not in config.to_toml()


@pytest.mark.parametrize(("chosen", "tunes"), [("true", True), ("false", False)])
def test_a_preset_says_whether_the_autotuner_chooses_the_chunk(files, monkeypatch, chosen, tunes):
    files(ppo=f"[quick]\nauto_tune = {chosen}")
    asked = []

    def tuned(config):
        asked.append(config)
        return dataclasses.make_dataclass("Answer", ["scan_chunk_size"])(64)

    monkeypatch.setattr("myriad.api.autotune", tuned)
    config = create_config("cartpole-control", "ppo", preset="quick")
    assert len(asked) == int(tunes)
    assert ("scan_chunk_size" in config.given) == tunes
    # Yours comes first.
    create_config("cartpole-control", "ppo", preset="quick", scan_chunk_size=128)
    create_config("cartpole-control", "ppo", preset="quick", auto_tune=False)
    assert len(asked) == int(tunes)


@pytest.mark.slow
def test_what_does_not_fit_into_memory_is_refused_with_what_does(files, tmp_path):
    files(dqn="[huge]\nnum_envs = 8\nbuffer_size = 2_000_000_000")
    config = create_config("cartpole-control", "dqn", preset="huge")
    with pytest.raises(InvalidArgumentError, match=r"2,000,000,000 .*transitions of replay fit"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fastest"], "unknown preset 'fastest' of ppo"),
        (["optimised"], "did you mean 'optimized'?"),
        (["ultra_fast", "--agent.num-minibatches", "7"], "num_minibatches must divide"),
        (["tuned", "--agent", "pppo"], "unknown agent 'pppo'; did you mean 'ppo'"),
    ],
)
def test_a_wrong_preset_is_refused_and_nothing_is_written(
    words, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    command = ["train", "--env", "cartpole-control", "--agent", "ppo", "--preset", *words]
    assert main(command) == 2
    assert says in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[quick", "is not TOML"),
        ("[quick]\nagent.num_epochs = 2", "write options of quick in quotes"),
        ("quick = 3", "quick must be a table of fields"),
        ("[quick]\nauto_tune = 3", "auto_tune of quick must be true or false"),
        ("[quick]\nnum_env = 3", "unknown field 'num_env'; did you mean 'num_envs'"),
        ('[quick]\nnum_envs = "x"', "preset 'quick': num_envs must be an integer"),
        ('[quick]\n"agent.gamma" = 2.0', "preset 'quick': agent.gamma must be a num"),
    ],
)
def test_a_mistake_in_a_file_is_named(files, text, says):
    files(ppo=text)
    with pytest.raises((InvalidArgumentError, UnknownNameError), match=says):
        create_config("cartpole-control", "ppo", preset="quick")


def test_a_preset_of_another_agent_is_refused(files):
    files(ppo="[mine]\nnum_envs = 8", dqn="[other]\nnum_envs = 8")
    with pytest.raises(InvalidArgumentError, match="unknown preset 'other' of ppo on cart"):
        create_config("cartpole-control", "ppo", preset="other")


def test_the_command_lists_what_each_preset_sets(capsys):
    assert main(["presets", "--agent", "ppo"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].split() == ["field", "baseline", "optimized", "ultra_fast"]
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines()[2:]}
    assert rows["num_envs"][0] == "16"
    assert rows["auto_tune"] == ["false"] * 3
    assert main(["presets", "--env", "pendulum-control"]) == 0
    assert "dqn on pendulum-control: DQN learns a value" in capsys.readouterr().out
    assert main(["presets", "--agent", "random"]) == 2
    assert "unknown agent with presets 'random'" in capsys.readouterr().err
