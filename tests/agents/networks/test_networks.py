"""Networks by name: what each learner trains, and what is refused before it does."""

import jax
import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, make_env, train_and_evaluate
from myriad.agents import make_agent
from myriad.agents.actor_critic import ReplayActorCritic, TwinCritics
from myriad.agents.networks import NETWORKS, NetworkSpec
from myriad.agents.ppo import PPO
from myriad.api import resume
from myriad.cli.arguments import parse
from myriad.spaces import Box
from tests.agents.plain_networks import Unplayed
from tests.bits import assert_same_bits
from tests.learners import small_without_layers

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
# The least that its strides leave anything of.
OF_PICTURES = {"env.height": 36, "env.width": 36, "agent.hidden_sizes": (8,)}
OWN = "tests.agents.networks.own_networks"


def config_of(agent, network, **fields):
    options = {f"agent.{name}": value for name, value in small_without_layers(agent).items()}
    return create_config("snake", agent, **SMALL | options | fields | {"agent.network": network})


def memory_of(leaf):
    return leaf.sharding.memory_kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "network", "options"),
    [
        *(("ppo", name, {}) for name in NETWORKS.names() if name not in ("mlp", "nature-cnn")),
        ("ppo", "nature-cnn", OF_PICTURES),
        ("pqn", f"{OWN}:of_size", {}),
        ("dqn", "mlp", {f"agent.{name}_dtype": "float16" for name in ("param", "compute")}),
        ("dqn", "mlp", {"agent.replay_memory": "host"}),
    ],
    ids=str,
)
def test_a_learner_trains_evaluates_and_resumes_with_a_network(tmp_path, agent, network, options):
    config = config_of(agent, network, **options)
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
    again = resume(tmp_path / "whole", quiet=True, trust=network.startswith(OWN))
    assert_same_bits(again.agent_state, whole.agent_state)
    states = (again.agent_state, load_agent(tmp_path / "whole", trust=True)[2].state)
    for state in states:
        assert jax.tree.map(memory_of, state) == jax.tree.map(memory_of, whole.agent_state)


def first_weights(kernel_init):
    """Return the initial kernels of actor and critic by layer, as the command line draws them."""
    argv = ["train", "--env=snake", "--agent=ppo"]
    fields, _ = parse([*argv, f"--agent.kernel-init={kernel_init}"]).fields()
    learner = create_config(**fields).learner
    params = jax.jit(lambda: learner.init(jax.random.key(0), 16).params)()
    assert not any(leaf.any() for leaf in jax.tree.leaves(params) if leaf.ndim == 1)
    return {
        role: [layer["kernel"] for layer in params[role]["params"].values()]
        for role in ("actor", "critic")
    }


@pytest.mark.slow
def test_the_first_weights_are_orthogonal_or_lecuns():
    weights = first_weights("orthogonal")
    for role, gain in (("actor", 0.01), ("critic", 1.0)):
        *_, hidden, last = weights[role]
        np.testing.assert_allclose(hidden @ hidden.T, 2 * np.eye(64), atol=1e-5)
        np.testing.assert_allclose(last.T @ last, gain**2 * np.eye(last.shape[1]), atol=1e-6)
    for kernel_init, most in (("lecun_uniform", 3**0.5), ("lecun_normal", 2 / 0.8796)):
        first, *_, last = first_weights(kernel_init)["actor"]
        for kernel in (first, last):
            scaled = np.abs(kernel) * np.sqrt(len(kernel))  # by the number of inputs
            assert 0.9 * most < scaled.max() <= 1.001 * most
            np.testing.assert_allclose(np.mean(scaled**2), 1, atol=0.2)


def kernels(learner):
    """Return the shapes of a learner's kernels, a list for each network."""

    def networks(key):
        state = learner.init(key, 8)
        params = dict(getattr(learner, "named_params", lambda state: state.params)(state))
        if isinstance(learner, ReplayActorCritic):
            params["critic"] = learner.critics.network.unravel(learner.split(state.params)[1][0])
        params.pop("log_std", None)
        return params

    return {
        name: [leaf.shape for leaf in jax.tree.leaves(of_network) if leaf.ndim == 2]
        for name, of_network in jax.eval_shape(networks, jax.random.key(0)).items()
    }


@pytest.mark.parametrize(("agent", "num_seen"), [("ppo", 3), ("sac", 4), ("td3", 4)])
def test_a_critic_may_be_another_network_than_the_actor(agent, num_seen):
    options = small_without_layers(agent)
    learner = make_agent(agent, make_env("pendulum"), critic_hidden_sizes=(256, 256), **options)
    found = kernels(learner)
    assert found["actor"][:2] == [(3, 64), (64, 64)]
    assert found["critic"] == [(num_seen, 256), (256, 256), (256, 1)]
    # One of your own is told its role, here by the width that it has.
    options["network"] = f"{OWN}:of_role"
    found = kernels(make_agent(agent, make_env("pendulum"), **options))
    assert (found["actor"][0][1], found["critic"][0][1]) == (len("actor"), len("critic"))


@pytest.mark.parametrize("channels", [(), (3,)])
def test_bytes_are_scaled_in_the_network_unless_their_moments_scale_them(channels):
    num_channels = sum(channels or (1,))
    env = Unplayed(Box(0, 255, (40, 40, *channels), np.uint8), Box(-1.0, 1.0, (2,)))
    spec = NetworkSpec.of(PPO(env, network="nature-cnn", normalize_observations=False))
    assert spec.build(2).byte_channels == num_channels
    moments = NetworkSpec.of(PPO(env, network="nature-cnn"))
    assert moments.build(2).byte_channels == 0
    # The action that a critic gets as two more channels stays as it is.
    critic = TwinCritics(spec, 2).network.spec
    assert critic.build(1).byte_channels == num_channels
    assert critic.obs_shape == (40, 40, num_channels + 2)
