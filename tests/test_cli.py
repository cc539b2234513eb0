"""The command line's flags are the configuration's fields, and a mistake is one sentence."""

import re
import sys
from dataclasses import fields

import pytest

from myriad import __version__, list_envs, make_env
from myriad.agents import list_agents, make_learner
from myriad.agents.ppo import PPO
from myriad.cli import main
from myriad.cli.arguments import parse
from myriad.cli.flags import NAMES, sentences
from myriad.training.config import TrainingConfig
from tests.child_processes import python

BATCH = ["autotune", "--env", "cartpole-control", "--agent"]


@pytest.fixture
def help_of(capsys, monkeypatch):
    """Return what `--help` prints, its lines joined."""
    monkeypatch.setenv("COLUMNS", "200")

    def ask(*argv):
        with pytest.raises(SystemExit) as end:
            main([*argv, "--help"])
        assert not end.value.code
        return " ".join(re.sub(r"[│\n]", " ", capsys.readouterr().out).split())

    return ask


def test_help_has_every_field_as_a_flag_and_begins_with_what_is_needed(help_of):
    text = help_of("train")
    assert list(sentences(TrainingConfig)) == [each.name for each in fields(TrainingConfig)]
    for name in NAMES:
        assert f"--{name.replace('_', '-')} " in text
        assert sentences(TrainingConfig)[name] in text
    for command in ("train", "tune", "autotune", "doctor"):
        text = help_of(command)
        assert re.findall(r" --([a-z-]+) [A-Z]", text)[:2] == ["env", "agent"]
        assert "--without-xla-option" in text
    assert "are two names of one command" in help_of()


def test_help_shows_defaults_of_this_agent_here_with_their_sentences_and_what_you_chose(help_of):
    given = ["--agent.gamma", "0.5", "--agent.gae-lambda", "linear(0.9, 1)"]
    text = help_of("train", "--env=cartpole", "--agent=ppo", *given)
    default = make_learner("ppo", make_env("cartpole")).default_num_envs
    assert re.search(rf"--num-envs INT [^-]*\(default: {default}\)", text)
    assert re.search(r"--env\.gravity FLOAT .*?\(default: 9\.8\)", text)
    assert re.search(r"--agent\.gae-lambda [^-]*\(default: linear\(0\.9, 1\)\)", text)
    assert f"--agent.clip-epsilon FLOAT {sentences(PPO)['clip_epsilon']} (default: 0.2)" in text
    assert re.search(r"--agent\.gamma FLOAT [^-]*\(default: 0\.5\)", text)
    assert "--agent.value-clip VALUE" in text


def test_a_file_may_leave_to_flags_what_to_train(help_of, refused, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('env = "cartpole"\nnum_envs = 2\nsteps_per_env = 7\n')
    for flag, steps in (("--steps-per-env", 64), ("--total-steps", 32)):
        argv = ["train", "--config", str(file), "--agent", "random", flag, "64"]
        assert parse(argv).described()[0].steps_per_env == steps  # yours replaces the file's
    file.write_text('env = "cartpole"\nnum_envs = 77\n')
    config = parse(["train", "--config", str(file), "--agent", "ppo"]).described()[0]
    assert (config.env, config.agent, config.num_envs) == ("cartpole", "ppo", 77)
    assert "(default: 77)" in help_of("train", "--config", str(file), "--agent", "ppo")
    file.write_text('env = "cartpole"\nagent = "ppo"\n[env_options]\ntau = -1\n')
    assert refused("train", "--config", str(file)).startswith("env.tau must be ")
    file.write_text('env = "cartpole"\n')
    assert "--agent is missing" in refused("train", "--config", str(file))


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "Expected one of"),
        (["rendre", "--output", "render"], "'rendre'; did you mean 'render'?"),
        (["train", "--num-envs", "many"], "--num-envs"),
        (["train", "--agnt", "ppo"], "--agent STR"),
        (["train", "--agent", "ppo"], "--env is missing"),
        (["train", "--env", "env", "--agent", "ppo"], "unknown environment 'env'. Known: bucket"),
        (["train", "--agent", "pppo", "--env", "cartpole", "--help"], "did you mean 'ppo'"),
        (["train", "--agent.gamma"], "--agent.gamma"),
        (["evaluate"], "PATH"),
        (["evaluate", "run", "8", "9"], "9"),
        (["autotune", "--show", "--env", "cartpole", "--force"], "--env, --force can't be given"),
        ([*BATCH, "ppo", "--tune", "batch", "--write-env", "."], "can't be written"),
        ([*BATCH, "ppo", "--write-env", "x.env"], "writes a batch, so it needs --tune batch"),
        ([*BATCH, "random", "--tune", "batch", "--write-env"], "random learns from no batches"),
        # An empty path isn't the current folder.
        (["train", "--resume", ""], "--resume is empty"),
        (["evaluate", ""], "an argument is empty"),
        # A resumed run would ignore them.
        (["train", "--resume", "run", "--seed=0"], "leave out --seed"),
        (
            ["train", "--resume", "run", "--agent.learning-rate=1e-3"],
            "leave out --agent.learning-rate",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_named_and_ends_with_exit_code_2(argv, named, refused):
    assert named in refused(*argv)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("ppo --agent.learning-rat 1", "'learning_rat' of ppo; did you mean 'learning_rate'?"),
        ("ppo --run-folder=", "--run-folder is empty"),
        ("ppo --process-id=1", "--process-id needs --distributed"),
        # settings
        ("ppo --batch-size 0", "--batch-size must be"),
        ("ppo --batch-size 33", "must divide the batch"),
        ("ppo --batch-size 64 --agent.num-minibatches 4", "say the same"),
        ("ppo --compile=ture", "Unrecognized options: ture"),
        ("ppo --compile --compile-mode jit", "say the same"),
        ("ppo --comple", "--compile, --no-compile"),
        ("ppo --flash-attention", "--flash-attention is for agents with"),
        ("ppo --bf16 --agent.compute-dtype float16", "say the same"),
        ("ppo --wandb-name x", "--wandb-name needs --wandb"),
        ("pid --bf16", "--bf16 is for agents with a network"),
        ("random --batch-size 8", "--batch-size is for agents with batches"),
        # seeds
        ("ppo --num-seeds 0", "--num-seeds must be an integer from 1 to 100,000, but got 0"),
        ("ppo --num-seeds 2 --seeds 1", "--num-seeds and --seeds say the same"),
        ("ppo --num-seeds 2 --film-every 1", "--film-every must be 0"),
        ("ppo --num-seeds 2 --log-to tensorboard", "--log-to must be []"),
        ("ppo --num-seeds 2 --profile 1", "--profile must be 0"),
        ("ppo --num-seeds 2 --compile-mode jit", "--compile-mode must be 'aot'"),
        (
            "ppo --compile-mode off --steps-per-env 1001",
            "--steps-per-env must be at most 1,000 with compile_mode = 'off'",
        ),
        ("ppo --seeds 1 2 1", "--seeds must be different, but got [1, 2, 1]"),
        ("ppo --mapping vmap", "--mapping must be left out without seeds"),
        ("pid --num-seeds 2", "seeds must be left out for pid"),
    ],
)
def test_a_training_that_cannot_be_is_refused_by_its_flag_and_writes_nothing(words, named, refused):
    sizes = ["--num-envs", "2", "--steps-per-env", "64"]
    assert named in refused("train", "--env", "cartpole", *sizes, "--agent", *words.split())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("x.gif --env snak", "'snak'; did you mean 'snake'?"),
        ("x.avi", "end in .gif or .mp4, but got 'x.avi'"),
        ("x.gif --steps 0", "--steps must be"),
        ("x.gif --fps 60", "--fps must be 1 to 50 for a .gif file, but got 60"),
        ("x.gif --agent rnadom", "'rnadom'; did you mean 'random'?"),
        ("x.gif --agent ppo", "ppo must be trained"),
        ("none/x.gif", "none/x.gif can't be written"),
        ("x.gif --run-folder r", "--env can't be given"),
        ("x.gif --trust", "--trust can't be given without --run-folder"),
        ("x.mp4", "an MP4 needs imageio-ffmpeg, "),
    ],
)
def test_a_film_that_cannot_be_is_refused_and_not_written(words, named, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert named in refused("render", "--env", "pendulum", "--output", *words.split())


def test_the_package_runs_as_a_module_and_lists_names(capsys):
    for command, names in (("envs", list_envs()), ("agents", list_agents())):
        assert main([command]) == 0
        assert capsys.readouterr().out.splitlines() == names
    assert python("-m", "myriad", "--version").stdout == f"myriad {__version__}\n"
