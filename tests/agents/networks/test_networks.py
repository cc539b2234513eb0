"""Networks by name: what each learner trains, and what is refused before it does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad import create_config, evaluate, make_env, train_and_evaluate
from myriad.agents import make_agent
from myriad.agents.actor_critic import TwinCritics
from myriad.agents.networks import NetworkSpec, kernels
from myriad.agents.ppo import PPO
from myriad.api import resume
from myriad.cli import main, parse
from myriad.cli.training_flags import fields_of
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box
from myriad.training.active_settings import active_settings, in_short

SMALL = {
    "env.height": 6,
    "env.width": 5,
    "num_envs": 4,
    "steps_per_env": 32,
    "eval_frequency": 16,
    "eval_rollouts": 2,
    "eval_max_steps": 8,
    "checkpoint_every_s": 0,
}
OF_AGENT = {
    "dqn": {"buffer_size": 256, "batch_size": 8, "agent.learning_starts": 8},
    "ppo": {"rollout_steps": 8, "agent.num_epochs": 1, "agent.num_minibatches": 2},
    "pqn": {"rollout_steps": 8, "agent.num_epochs": 1, "agent.num_minibatches": 2},
}
OWN = """
import flax.linen as nn


class Flat(nn.Module):
    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        assert obs.shape[1:] == (6, 5, 3)
        return nn.Dense(self.num_outputs)(obs.reshape(obs.shape[0], -1))


class Wide(nn.Module):
    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.num_outputs + 1)(obs.reshape(obs.shape[0], -1))


class Moving(nn.Module):
    num_outputs: int

    @nn.compact
    def __call__(self, obs):
        obs = nn.BatchNorm(use_running_average=True)(obs.reshape(obs.shape[0], -1))
        return nn.Dense(self.num_outputs)(obs)


class NoSize(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return obs


def of_size(num_outputs):
    return Flat(num_outputs)


def nothing(num_outputs):
    return None
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Have a module of your own in the working folder."""
    (tmp_path / "own_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


def config_of(agent, network, **fields):
    return create_config(
        "snake", agent, **SMALL | OF_AGENT[agent] | fields | {"agent.network": network}
    )


def assert_same(state, other):
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


@pytest.mark.slow
@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("agent", "network"),
    [("ppo", "cnn"), ("ppo", "gru"), ("dqn", "attention"), ("pqn", "own_networks:Flat")],
)
def test_a_learner_trains_evaluates_and_resumes_with_a_network(tmp_path, agent, network):
    config = config_of(agent, network)
    whole = train_and_evaluate(config, tmp_path / "whole", quiet=True)
    first = jax.tree.leaves(config.learner.init(jax.random.key(0), 4).params)
    trained = jax.tree.leaves(whole.agent_state.params)
    assert all(np.isfinite(leaf).all() for leaf in trained)
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(first, trained, strict=True))
    assert np.isfinite(evaluate(whole.config, whole.agent_state, 3)).all()

    # As if it had been stopped at its first checkpoint.
    first, last = sorted(
        (tmp_path / "whole" / "checkpoints").iterdir(), key=lambda folder: int(folder.name)
    )
    last.rename(tmp_path / last.name)
    assert int(last.name) == 2 * int(first.name)
    again = resume(tmp_path / "whole", quiet=True, trust=network.startswith("own"))
    assert_same(again.agent_state, whole.agent_state)


@pytest.mark.slow
def test_options_of_a_learner_hold_for_other_networks(tmp_path):
    options = {"agent.normalize_observations": True, "agent.dueling": True}
    results = train_and_evaluate(config_of("dqn", "cnn", **options), tmp_path / "run", quiet=True)
    assert np.isfinite(results.evaluations[-1]["return"])


@pytest.mark.long
def test_the_command_line_trains_a_cnn_on_minatar(tmp_path, capsys):
    words = "train --env gymnax:Breakout-MinAtar --agent ppo --agent.network cnn --num-envs 4"
    words += " --steps-per-env 16 --rollout-steps 8 --eval-rollouts 1 --eval-max-steps 4 --quiet"
    assert main([*words.split(), "--run-folder", str(tmp_path / "run")]) == 0
    assert "steps/s" in capsys.readouterr().out


def test_a_network_has_hyperparameters_of_its_own_which_yours_replace():
    env = make_env("snake")
    agent = make_agent("ppo", env, network="cnn")
    assert (agent.hidden_sizes, agent.activation) == ((128,), "relu")
    assert not agent.normalize_observations
    assert not agent.preserve_outputs
    agent = make_agent("pqn", env, network="attention", hidden_sizes=(32,))
    assert (agent.hidden_sizes, agent.activation) == ((32,), "gelu")
    agent = make_agent("dqn", env)
    assert (agent.network, agent.hidden_sizes, agent.activation) == ("mlp", (64, 64), "relu")


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_a_function_that_returns_a_module_will_do():
    agent = make_agent("ppo", make_env("snake", height=6, width=5), network="own_networks:of_size")
    obs = jnp.zeros((3, 6, 5, 3))
    action = agent.act(agent.init(jax.random.key(0), 8), jax.random.key(1), obs, greedy=False)
    assert action.shape == (3,)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("env", "options", "says"),
    [
        ("snake", {"network": "cnm"}, "did you mean 'cnn'"),
        ("cartpole-control", {"network": "cnn"}, r"network must suit .* of shape \[4\]"),
        ("cartpole-control", {"network": "attention"}, "network must suit observations"),
        ("snake", {"attention": "chunked"}, "attention must be 'auto' with network 'mlp'"),
        (
            "snake",
            {"network": "cnn", "preserve_outputs": True},
            "preserve_outputs must be false with network",
        ),
        (
            "snake",
            {"network": "own_networks:Wide"},
            r"must map float32 observations \[B, .*\] to floats \[B, 4\].*\[B, 5\]",
        ),
        ("snake", {"network": "own_networks:Moving"}, "keep all .* in `params`.* batch_stats"),
        ("snake", {"network": "own_networks:NoSize"}, "call with the output size.* TypeError"),
        ("snake", {"network": "own_networks:nothing"}, "a module of flax.linen.* returns None"),
        ("snake", {"network": "own_networks:Flatt"}, "can't be imported"),
    ],
    ids=str,
)
def test_a_network_that_does_not_fit_is_refused(env, options, says):
    with pytest.raises(InvalidArgumentError, match=says):
        make_agent("ppo", make_env(env), **options)


def test_a_grid_too_small_for_a_convolution_is_refused():
    with pytest.raises(InvalidArgumentError, match="at least 3 x 3 cells"):
        make_agent("ppo", make_env("snake", height=2, width=9), network="cnn")


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Only the spaces of an environment whose observations are bytes."""

    channels: tuple[int, ...] = (3,)
    default_params: tuple[()] = ()

    def observation_space(self, params):
        return Box(0, 255, (40, 40, *self.channels), np.uint8)

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize("channels", [(), (3,)])
def test_bytes_are_scaled_in_the_network_unless_their_moments_scale_them(channels):
    env, num_channels = Pictures(channels), sum(channels or (1,))
    spec = NetworkSpec.of(PPO(env, network="nature-cnn", normalize_observations=False))
    assert spec.build(2).byte_channels == num_channels
    moments = NetworkSpec.of(PPO(env, network="nature-cnn"))
    assert moments.build(2).byte_channels == 0
    # The action that a critic gets as two more channels stays as it is.
    critic = TwinCritics(spec, 2).network.spec
    assert critic.build(1).byte_channels == num_channels
    assert critic.obs_shape == (40, 40, num_channels + 2)


def test_a_network_for_pictures_refuses_small_grids():
    with pytest.raises(InvalidArgumentError, match="at least 36 x 36 cells"):
        make_agent("ppo", make_env("snake"), network="nature-cnn")


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="a GPU has cudnn")
def test_bad_input_on_the_command_line_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    words = "train --env snake --agent pqn --agent.network attention --agent.attention cudnn"
    assert main([*words.split(), "--run-folder", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith("--agent.attention must be auto, reference, xla")
    assert not (tmp_path / "run").exists()


def test_a_run_says_which_attention_it_chose_and_why():
    config = config_of("ppo", "attention")
    named = {each.name: each for each in active_settings(config)}
    assert named["attention"].value == "xla"
    assert "9 tokens" in named["attention"].reason
    assert "attention xla (9 tokens" in in_short(list(named.values()))
    config = config_of("ppo", "attention", **{"agent.attention": "chunked"})
    assert "attention chunked (given)" in in_short(active_settings(config))
    config = config_of("ppo", "cnn")
    assert "attention" not in in_short(active_settings(config))


def test_a_switch_of_the_folder_is_for_the_network_that_has_attention():
    switches = {"flash_attention": False}
    assert fields_of(switches, "ppo", "attention") == {"agent.attention": "xla"}
    assert fields_of(switches, "ppo", "cnn") == {}
    assert fields_of(switches, "ppo", None) == {}


@pytest.mark.parametrize(("dtype", "chosen"), [("float32", "chunked"), ("float16", "cudnn")])
def test_attention_in_blocks_follows_the_dtype_wherever_it_was_set(
    dtype, chosen, monkeypatch, tmp_path
):
    monkeypatch.setattr(kernels, "has_cudnn_attention", lambda: True)
    file = tmp_path / "mine.toml"
    file.write_text(
        f'env = "snake"\nagent = "ppo"\n[agent_options]\ncompute_dtype = "{dtype}"\n'
        'network = "attention"\n'
    )
    fields, _ = parse(["train", "--config", str(file), "--flash-attention"]).fields()
    assert fields["agent.attention"] == chosen
    argv = ["train", "--env", "snake", "--agent", "ppo", "--agent.network", "attention"]
    argv += ["--agent.compute-dtype", dtype, "--flash-attention"]
    assert parse(argv).fields()[0]["agent.attention"] == chosen
    monkeypatch.setattr(kernels, "has_cudnn_attention", lambda: False)
    assert parse(argv).fields()[0]["agent.attention"] == "chunked"


def test_a_runs_file_serves_another_network(tmp_path):
    """It spells out the defaults of its network, and what was chosen stays."""
    file = tmp_path / "config.toml"
    argv = ["train", "--config", str(file), "--agent.network"]
    for before, now in [("mlp", "cnn"), ("cnn", "mlp"), ("attention", "cnn")]:
        of_run, expected = (
            config_of("pqn", network, **{"agent.gamma": 0.5}) for network in (before, now)
        )
        file.write_text(of_run.to_toml())
        assert parse([*argv, now]).training() == expected
    chosen = config_of("pqn", "mlp", **{"agent.hidden_sizes": (32,)})
    file.write_text(chosen.to_toml())
    assert parse([*argv, "attention"]).training().learner.hidden_sizes == (32,)


@pytest.mark.usefixtures("own")
def test_a_network_of_your_own_refuses_layers_that_it_would_ignore():
    with pytest.raises(
        InvalidArgumentError, match=r"^agent.hidden_sizes must be left out with network"
    ):
        config_of("ppo", "own_networks:Flat", **{"agent.hidden_sizes": (32,)})
