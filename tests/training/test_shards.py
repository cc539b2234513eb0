"""A training in shards comes to the same on 1, 2, 4 and 8 devices.

What the environments go through is the same bits. What is learned agrees within 1e-5: a processor's
compiler may round it otherwise in another program.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from myriad import create_config, make_train, train_and_evaluate
from myriad.agents.q_learning import scale_by_radam_alike
from myriad.agents.shards import Shards, largest_share
from myriad.api import load_agent
from myriad.errors import InvalidArgumentError
from myriad.training.population import Population

DEVICES = (1, 2, 4, 8)
SHARDS = 8
# Small, but with several environments, minibatches and steps in each shard.
SMALL = {
    "ppo": {"agent.rollout_steps": 8, "agent.num_epochs": 2, "agent.num_minibatches": 2},
    "pqn": {"agent.rollout_steps": 8, "agent.num_epochs": 2, "agent.num_minibatches": 2},
    "dqn": {
        "agent.train_every": 2,
        "agent.learning_starts": 96,
        "agent.gradient_steps": 3,
        "batch_size": 64,
        "buffer_size": 1024,
        "agent.priority_alpha": 0.6,
    },
}
# One gradient step in an update, and nothing that clips it: Adam's first moment is then a tenth of
# the gradient.
ONE_STEP = {
    "ppo": {"agent.num_epochs": 1, "agent.num_minibatches": 1},
    "pqn": {"agent.num_epochs": 1, "agent.num_minibatches": 1},
    "dqn": {"agent.train_every": 4, "agent.gradient_steps": 1, "agent.priority_alpha": 0.0},
}
WORLD = {"num_envs": 32, "num_shards": SHARDS, "agent.hidden_sizes": [16, 16]}

# What environments go through, and what is kept of it. All else is learned.
EXACT = ("key", "num_updates", "batch_state", "agent.replay", "agent.num_updates")

CHILD = """
import json, re, sys
from pathlib import Path
import jax
import jax.numpy as jnp
import numpy as np
from myriad import configure, create_config, settings
from myriad.random import make_key
from myriad.training.checkpoint import Checkpoints
from myriad.training.loop import LearningLoop
from myriad.xla import numbers_of, output_fusion, result_shapes, use_compilation_cache

configure()
use_compilation_cache(settings.compilation_cache())
agent, folder = sys.argv[1], Path(sys.argv[2])
options, one_step = json.loads(sys.argv[3])


def save(name, tree):
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(p, simple=True, separator="."): numbers_of(x) for p, x in paths}
    np.savez(folder / f"{name}.npz", **named)


def compiled(num_devices, **extra):
    resolved = create_config("cartpole", agent, **options | extra).resolve()
    learner = resolved.learner.scheduled(10)
    loop = LearningLoop(resolved.env, learner, resolved.num_envs, num_devices=num_devices)
    init, run = loop.jitted()
    first = init.trace(make_key(7))
    shapes = result_shapes(first)
    running = run.lower(shapes, np.int32(0), np.bool_(False)).compile()
    return loop, first.lower().compile(), running, shapes


def run(program, state, num_updates, begin=False):
    return program(state, np.int32(num_updates), np.bool_(begin))


facts = {}
checkpoints = Checkpoints(folder / "checkpoints")
loops = {}
for num_devices in (1, 2, 4, 8):
    loop, init, program, shapes = loops[num_devices] = compiled(num_devices)
    state = init(make_key(7))
    for i in range(3):
        if num_devices == 8 and i == 2:
            checkpoints.save(2, loop.on_one_device(state))
        state, report = run(program, state, 1, i == 0)
    save(num_devices, state)
    save(f"report{num_devices}", report)
    of_envs = jax.tree.leaves(state.batch_state)
    replay = jax.tree.leaves(state.agent.replay.columns) if agent == "dqn" else []
    facts[str(num_devices)] = {
        "shares": [x.addressable_shards[0].data.size / x.size for x in of_envs + replay],
        "holders": [len(x.addressable_shards) for x in of_envs + replay],
        "params": sum(x.size for x in jax.tree.leaves(state.agent.params)),
    }
# In one call, and in two of other lengths.
for name, lengths in (("whole", (3,)), ("cut", (2, 1))):
    state = loops[4][1](make_key(7))
    for i, length in enumerate(lengths):
        state, _ = run(loops[4][2], state, length, i == 0)
    save(name, state)
for num_devices in (1, 2):
    loop, _, program, shapes = loops[num_devices]
    state, _ = run(program, loop.everywhere(checkpoints.restore(2, shapes)), 1)
    save(f"resumed{num_devices}", state)

whole_run = jax.jit(loops[8][0].run)
facts["fuses"] = bool(
    output_fusion(lambda: whole_run.trace(loops[8][3], np.int32(0), np.bool_(False)).jaxpr)
)
text = loops[8][2].as_text()
widest = max(int(n) for n in re.findall(r"f32\\[8,(\\d+)\\]\\S* all-gather\\(", text))
bodies = re.split(r"\\n}\\n", text)
with_step = [b for b in bodies if re.search(rf"f32\\[8,{widest}\\]\\S* all-gather\\(", b)]
facts["widest"] = widest
facts["gathers"] = [len(re.findall(r" all-gather(?:-start)?\\(", b)) for b in with_step]
facts["others"] = [len(re.findall(r" (?:all-reduce|reduce-scatter)\\S*\\(", b)) for b in with_step]

for name, num_devices, reduction in (("1", 1, "exact"), ("8", 8, "exact"), ("fast", 8, "fast")):
    extra = one_step | {"agent.max_grad_norm": float("inf"), "reduction": reduction}
    _, init, program, _ = compiled(num_devices, **extra)
    state, _ = run(program, init(make_key(7)), 1, True)
    save(f"step{name}", state)
(folder / "facts.json").write_text(json.dumps(facts))
"""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in sorted(SMALL)]
)
def trained(request, tmp_path_factory):
    """Return an agent's name and the folder with what a process of 8 devices made of it."""
    folder = tmp_path_factory.mktemp(request.param)
    options = json.dumps([WORLD | SMALL[request.param], ONE_STEP[request.param]])
    subprocess.run(
        [sys.executable, "-c", CHILD, request.param, str(folder), options],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": ""},
        check=True,
        timeout=600,
    )
    return request.param, folder


def state_of(folder, name):
    with np.load(folder / f"{name}.npz") as saved:
        return dict(saved)


def differing(one, other):
    """Return the names of the arrays that are not the same bits."""
    assert one.keys() == other.keys()
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def assert_same_training(one, other):
    """Compare bits of what environments went through, and the rest within rounding."""
    assert [name for name in differing(one, other) if name.startswith(EXACT)] == []
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("num_devices", DEVICES[1:])
def test_a_training_is_the_same_on_any_number_of_devices(trained, num_devices):
    agent, folder = trained
    one, other = (state_of(folder, n) for n in (1, num_devices))
    assert_same_training(one, other)
    # More than the start of an episode was looked at.
    assert one["batch_state.num_episodes"].sum() > 0 or agent == "dqn"
    ends = [state_of(folder, f"report{n}") for n in (1, num_devices)]
    for name in ("num_episodes", "is_bad"):
        assert ends[0][name].tobytes() == ends[1][name].tobytes()
    np.testing.assert_allclose(ends[0]["return_sum"], ends[1]["return_sum"], rtol=1e-5)


def gradient_of(state):
    return next(10 * array for name, array in state.items() if name.endswith(".mu"))


@pytest.mark.parametrize("other", ["8", "fast"])
def test_gradients_agree_before_the_optimiser(trained, other):
    # Adam would hide a gradient that counts every device.
    _, folder = trained
    one, many = (gradient_of(state_of(folder, f"step{name}")) for name in ("1", other))
    assert np.abs(one).max() > 0
    assert np.abs(many - one).max() <= 1e-6 * np.abs(one).max()


def test_each_device_holds_its_share_of_environments_and_replay(trained):
    _, folder = trained
    facts = json.loads((folder / "facts.json").read_text())
    for num_devices in DEVICES:
        of_devices = facts[str(num_devices)]
        assert set(of_devices["shares"]) == {1 / num_devices}
        assert set(of_devices["holders"]) == {num_devices}


def test_a_gradient_step_gathers_once(trained):
    _, folder = trained
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["widest"] >= facts["8"]["params"]
    assert facts["gathers"] == [1]
    assert facts["others"] == [0]


def test_outputs_are_fused_as_without_shards(trained):
    # So what the other tests compare is rounded by fused programs. Indexed updates keep DQN's out.
    agent, folder = trained
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["fuses"] == (agent != "dqn")


def test_results_are_the_same_however_updates_are_cut_into_chunks(trained):
    _, folder = trained
    whole = state_of(folder, "whole")
    assert differing(whole, state_of(folder, "cut")) == []
    assert differing(whole, state_of(folder, 4)) == []


@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_checkpoint_goes_on_on_other_devices(trained, num_devices):
    _, folder = trained
    resumed = state_of(folder, f"resumed{num_devices}")
    assert_same_training(state_of(folder, 8), resumed)


def test_the_optimiser_of_pqn_in_shards_is_that_of_optax():
    ours, theirs = scale_by_radam_alike(1e-3), optax.scale_by_radam(eps=1e-3)
    key = jax.random.key(0)
    state = other = theirs.init(jnp.zeros(50))
    for i in range(12):
        gradient = jax.random.normal(jax.random.fold_in(key, i), 50)
        step, state = ours.update(gradient, state)
        expected, other = theirs.update(gradient, other)
        np.testing.assert_allclose(step, expected, rtol=1e-4)
    assert jax.tree.structure(state) == jax.tree.structure(other)


def shortly(agent="ppo", **options):
    fields = {"num_envs": 32, "num_shards": 4} | SMALL[agent] | options
    return create_config("cartpole", agent, **fields)


@pytest.mark.slow
def test_a_run_resumes_on_other_devices_and_ends_alike(tmp_path):
    config = shortly(steps_per_env=32, eval_frequency=8, checkpoint_every_s=0.0, eval_rollouts=6)
    first = train_and_evaluate(config, run_folder=tmp_path / "first", quiet=True)
    again = shutil.copytree(tmp_path / "first", tmp_path / "again")
    newest = max((again / "checkpoints").iterdir(), key=lambda path: int(path.name))
    shutil.rmtree(newest)
    done = subprocess.run(
        [sys.executable, "-m", "myriad.cli", "train", "--resume", str(again), "--quiet"],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "4", "XLA_FLAGS": ""},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "this run trained on" not in done.stderr
    assert newest.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, _, policy = load_agent(again)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5),
        jax.device_get(first.agent_state),
        jax.device_get(policy.state),
    )
    rows = [
        (tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("first", "again")
    ]
    returns = [[json.loads(row)["eval_return"] for row in of_run] for of_run in rows]
    assert returns[0] == returns[1]
    assert len(returns[0]) == 4


@pytest.mark.parametrize(
    ("agent", "options", "message"),
    [
        ("ppo", {"num_shards": 6}, "num_shards must be a power of two, such as 4 or 8, but got 6"),
        ("ppo", {"num_shards": 0}, "num_shards must be an integer from 1 to 2,147,483,647"),
        ("ppo", {"num_envs": 12, "num_shards": 8}, "num_shards must divide num_envs = 12, as 4"),
        (
            "ppo",
            {"agent.num_minibatches": 64},
            "num_shards must divide the rows of a minibatch = 4, as 4 does, but is 8",
        ),
        ("dqn", {"buffer_size": 1020}, "num_shards must divide buffer_size = 1,020, as 4 does"),
        ("dqn", {"batch_size": 30}, "num_shards must divide batch_size = 30, as 2 does, but is 8"),
        ("dqn", {"agent.replay_memory": "host"}, "replay_memory must be 'device' with num_shards"),
        ("ppo", {"reduction": "sum"}, "reduction must be 'exact' or 'fast'"),
        ("ppo", {"seeds": [0, 1]}, "seeds must be left out with num_shards = 8, but got"),
        ("ppo", {"compile_mode": "off"}, "compile_mode must be aot, cached or jit with num_shards"),
    ],
)
def test_what_shards_do_not_divide_is_refused(agent, options, message):
    with pytest.raises(InvalidArgumentError, match=message.replace(".", r"\.")):
        shortly(agent, **{"num_shards": 8} | options)


def test_agents_that_can_not_be_cut_are_refused():
    with pytest.raises(InvalidArgumentError, match="num_shards must be 1 with agent random"):
        create_config("cartpole", "random", num_shards=2)


def test_many_trainings_in_one_program_refuse_shards():
    with pytest.raises(InvalidArgumentError, match="num_shards must be 1 where trainings run side"):
        Population(shortly().resolve(), 2)
    with pytest.raises(InvalidArgumentError, match="num_shards must be 1, but is 4"):
        make_train(shortly())


def test_what_has_no_columns_is_joined_too():
    joined = Shards(4).joined({"obs": jnp.ones((4, 3, 2)), "mask": jnp.ones((4, 3, 0))})
    assert {name: leaf.shape for name, leaf in joined.items()} == {"obs": (12, 2), "mask": (12, 0)}


def test_devices_that_do_not_divide_the_shards_are_refused():
    with pytest.raises(
        InvalidArgumentError, match="num_devices must divide num_shards = 8, such as 4, but got 6"
    ):
        Shards(8).on(6)
    assert [largest_share(8, n) for n in (1, 2, 3, 6, 8, 100)] == [1, 2, 2, 4, 8, 8]
