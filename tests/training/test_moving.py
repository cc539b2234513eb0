"""A run that shared its gradient steps among devices goes on, and is evaluated, on any number."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from myriad.api import evaluate_run
from myriad.random import make_key
from myriad.training.checkpoint import Checkpoints
from myriad.training.config import TrainingConfig
from myriad.training.loop import LearningLoop
from myriad.xla import numbers_of

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long
MOVES = [(1, 2), (2, 1), (4, 2)]
STAYS = (2, 2)
# Each trains a run, then evaluates and resumes those that it is told to. In a minibatch are enough
# rows for four devices.
CHILD = """
import json, sys, warnings
from myriad import configure, create_config, resume, train_and_evaluate
from myriad.api import evaluate_run

configure()
shape = {"num_envs": 1024, "rollout_steps": 16, "steps_per_env": 64, "eval_frequency": 16}
network = {"agent.hidden_sizes": (8,), "agent.num_epochs": 2, "agent.num_minibatches": 1}
short = {"eval_rollouts": 2, "eval_max_steps": 100}
config = create_config("cartpole", "ppo", checkpoint_every_s=0.0, **shape, **short, **network)
train_and_evaluate(config, sys.argv[1])
print("trained", flush=True)
for folder in sys.stdin.read().splitlines():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        returns = evaluate_run(folder, 8).tolist()
        assert not said, said
        results = resume(folder)
    print(json.dumps([returns, [str(each.message) for each in said]]))
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """Train on 1, 2 and 4 devices; return the runs' folder, and what was said in each move."""
    folder = tmp_path_factory.mktemp("moved")
    children = {n: start(n, folder) for n in (1, 2, 4)}
    for child in children.values():
        assert child.stdout.readline() == "trained\n"
    for trained_on, resumed_on in [*MOVES, STAYS]:
        interrupted(folder / str(trained_on), folder / f"{trained_on} to {resumed_on}")
    said = {}
    for n, child in children.items():
        moves = [move for move in [*MOVES, STAYS] if move[1] == n]
        names = [str(folder / f"{move[0]} to {move[1]}") for move in moves]
        answers, _ = child.communicate("\n".join(names), timeout=300)
        assert child.returncode == 0
        lines = map(json.loads, answers.splitlines())
        said |= dict(zip(moves, lines, strict=True))
    return folder, said


def start(num_devices, folder):
    count = f"--xla_force_host_platform_device_count={num_devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {count}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder / str(num_devices))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def interrupted(run, copy):
    """Copy a run as it stood before its last update."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / "4")
    return copy


def states(run):
    """Return the states before the last update and after it."""
    resolved = TrainingConfig.from_toml((run / "config.toml").read_text()).resolve()
    loop = LearningLoop(resolved.env, resolved.learner, resolved.num_envs)
    shapes = jax.eval_shape(loop.init, make_key(0))
    checkpoints = Checkpoints(run / "checkpoints")
    return [checkpoints.restore(number, shapes) for number in (3, 4)]


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def plain(tree):
    """Return arrays of numbers, in which keys are words."""
    return jax.tree.map(numbers_of, tree)


def assert_same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, plain(left), plain(right))


def assert_close(left, right):
    """Hold numbers of about 1 to the promised precision."""
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), left, right)


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_moved_run_is_evaluated_to_the_same_bits(move, moved, tmp_path):
    folder, said = moved
    run = interrupted(folder / str(move[0]), tmp_path / "run")
    returns = evaluate_run(run, 8).tolist()
    assert said[move][0] == returns
    assert len(set(returns)) > 1


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_moved_run_goes_on_to_the_promised_precision(move, moved):
    folder, _ = moved
    stayed = folder / str(move[0])
    went = folder / f"{move[0]} to {move[1]}"
    before, whole = states(stayed)
    began, ended = states(went)
    assert_same_bits(before, began)
    # The policy that collected the last rollout is the same, so all that it met is, too.
    assert_same_bits(whole.batch_state, ended.batch_state)
    assert_close(plain(whole.agent), plain(ended.agent))
    assert rows(stayed)[:3] == rows(went)[:3]
    last, again = rows(stayed)[3], rows(went)[3]
    assert_close(last, again)
    for count in ("update", "steps", "episodes", "return"):
        assert last[count] == again[count]


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_moved_run_says_what_it_trained_on_and_what_that_means(move, moved):
    folder, said = moved
    names = {1: "1 CPU device", 2: "2 CPU devices", 4: "4 CPU devices"}
    trained_on, now = (names[n] for n in move)
    (sentence,) = said[move][1]
    assert sentence.startswith(f"this run trained on {trained_on} and continues on {now}: ")
    assert "not the same bits" in sentence
    checkpoints = Checkpoints(folder / f"{move[0]} to {move[1]}" / "checkpoints")
    assert [checkpoints.devices(n) for n in (3, 4)] == [[trained_on], [trained_on, now]]


def test_a_run_that_stays_says_nothing_and_goes_on_to_the_same_bits(moved):
    folder, said = moved
    assert said[STAYS][1] == []
    jax.tree.map(assert_same_bits, states(folder / "2"), states(folder / "2 to 2"))
