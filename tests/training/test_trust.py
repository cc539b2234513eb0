"""A run folder or a configuration file imports code of others only if you trust it."""

import re
import signal
import sys
from pathlib import Path

import pytest

from myriad import create_config, load_agent, resume
from myriad.cli import main
from myriad.envs.cartpole import CartPole
from myriad.errors import InvalidArgumentError
from myriad.training.compiled import CompiledTraining
from myriad.training.run_folder import RunFolder
from myriad.training.trainer import Trainer

MODULE = """
from myriad.envs.cartpole import CartPole as Mine
from myriad.agents.random import RandomAgent as Agent
print("it ran")
"""
SHORT = ["--num-envs", "4", "--total-steps", "64", "--quiet"]
SENTENCE = "run/config.toml: env 'planted:Mine' would be imported; "


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "planted.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("planted", None)


COMMANDS = [
    ["evaluate", "run", "--episodes", "2"],
    ["render", "--run-folder", "run", "--steps", "2", "--output", "it.gif"],
    ["train", "--resume", "run", "--quiet"],
    ["train", "--config", "run/config.toml", *SHORT, "--run-folder", "new"],
]


@pytest.mark.slow
def test_a_run_imports_what_it_names_only_if_you_trust_it(refused, capsys):
    # The command line may name it without trust.
    command = ["train", "--env", "planted:Mine", "--agent", "random", *SHORT]
    assert main([*command, "--run-folder", "run"]) == 0
    assert "it ran" in capsys.readouterr().out
    del sys.modules["planted"]
    for command in COMMANDS:
        said = refused(*command)
        assert said.startswith(SENTENCE)
        assert said.count("\n") == 1
    for call in (load_agent, resume):
        with pytest.raises(InvalidArgumentError, match="planted:Mine"):
            call("run")
    assert "planted" not in sys.modules
    for command in COMMANDS:
        assert main([*command, "--trust"]) == 0, command
    load_agent("run", trust=True)
    resume("run", trust=True, quiet=True)


def test_an_interrupted_run_says_what_goes_on():
    for env, command in (
        ("planted:Mine", "`myriad train --resume run --trust` goes on"),
        (type("Own", (CartPole,), {})(), "`resume('run', env=...)` goes on"),
    ):
        trainer = Trainer(CompiledTraining(create_config(env, "random")), RunFolder(Path("run")))
        with pytest.raises(KeyboardInterrupt, match=re.escape(command)):
            trainer._end_interrupted(signal.SIGINT)


TRAINS = (["train", "--config", "mine.toml"], ["doctor", "--config", "mine.toml"])
TUNES = (["tune", "--env", "cartpole", "--space", "mine.toml", "--n-trials", "0"],)
PPO = "env = 'cartpole'\nagent = 'ppo'\n[agent_options]\n"
GAMMA = "\n[parameters.'agent.gamma']\nlow = 0.9\nhigh = 1.0"


@pytest.mark.parametrize(
    ("lines", "commands"),
    [
        ("env = 'planted:Mine'\nagent = 'ppo'", TRAINS),
        ("env = 'cartpole'\nagent = 'planted:Agent'", TRAINS),
        (f"{PPO}network = 'planted:Net'", TRAINS),
        (f"{PPO}critic_network = 'planted:Net'", TRAINS),
        ("env = 'cartpole'\nagent = 'gymnax:Agent'", TRAINS),
        (f"[parameters]\n'agent.network' = {{ choices = ['mlp', 'planted:Net'] }}{GAMMA}", TUNES),
        (f"[fixed]\n'agent.critic_network' = 'planted:Net'{GAMMA}", TUNES),
    ],
)
def test_every_name_of_code_in_a_file_needs_trust(lines, commands, folder, refused, capsys):
    (folder / "mine.toml").write_text(lines)
    for command in commands:
        assert "add --trust" in refused(*command)
    assert "planted" not in sys.modules
    if commands == TUNES:
        main([*TUNES[0], "--trust"])
        assert "add --trust" not in capsys.readouterr().err


@pytest.mark.slow
def test_names_of_flags_and_of_adapters_need_no_trust(folder, capsys):
    (folder / "mine.toml").write_text("env = 'planted:Mine'\nagent = 'random'")
    command = ["train", "--config", "mine.toml", *SHORT]
    assert main([*command, "--env", "cartpole", "--run-folder", "a"]) == 0
    (folder / "theirs.toml").write_text("env = 'gymnax:Nothing'\nagent = 'random'")
    assert main(["train", "--config", "theirs.toml", *SHORT]) == 2
    assert "trust" not in capsys.readouterr().err
    assert "planted" not in sys.modules
