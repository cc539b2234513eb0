"""A call that is refused names the argument and the value, and writes nothing."""

import itertools

import numpy as np
import pytest

from myriad import create_config, evaluate, load_agent, make_train, resume, train_and_evaluate
from myriad.errors import MyriadError
from myriad.training.callbacks import Callback
from myriad.training.curves import plot_runs
from tests.training.small import SEEDS, small_config

ON_HOST = {"agent": "dqn", "agent.replay_memory": "host"}


def train(**arguments):
    """Return a function that trains in a folder. Arguments of the call are those with seeds."""
    called = {
        name: arguments.pop(name) for name in ("callbacks", "seeds", "best") if name in arguments
    }
    return lambda run: train_and_evaluate(small_config(**arguments), run, quiet=True, **called)


def named(name):
    """Return functions that take a run's folder of this name."""
    return [
        lambda _: resume(name),
        lambda _: load_agent(name),
        lambda _: train_and_evaluate(small_config("pid"), name),
    ]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (train(log_to=["tensorbord"]), "unknown tracker 'tensorbord'; did you mean 'tensorboard'"),
        (train(callbacks=[Callback]), "^callbacks is refused: "),
        (lambda run: resume(run, callbacks=5), "^callbacks is refused: "),
        *[
            (train(seeds=seeds), r"seeds must be a list of 1 to 100,000")
            for seeds in ([], [1.5], range(10**12))
        ],
        (train(seed=9, seeds=range(2)), "seed must be among the seeds"),
        (train(best=True), "best must be left out without start_from"),
        (train(seeds=SEEDS, **ON_HOST), r"^agent\.replay_memory must be 'device'"),
        (lambda _: make_train(small_config(target_return=450.0)), "target_return must be None for"),
        (lambda _: evaluate(small_config("pid"), None, 0), "num_episodes .* got 0"),
        (
            lambda _: evaluate(small_config(), {"params": np.ones(2)}),
            r"agent_state must be .* such as results.agent_state_of\(seed\)",
        ),
        *[
            (call, "^run_folder must be a name in UTF-8 without control characters")
            for call in named("") + named("\udcff") + named("a\0b")
        ],
        (lambda _: plot_runs("runs/a"), "run_folders must be a list .* got 'runs/a'"),
        (
            lambda run: train_and_evaluate(
                create_config("gymnax:Catch-bsuite", "ppo", film_every=2), run
            ),
            "film_every must be 0 for gymnax:Catch",
        ),
    ],
    ids=itertools.count(),
)
def test_it_is_refused(call, says, tmp_path):
    with pytest.raises(MyriadError, match=says):
        call(tmp_path / "run")
    assert not list(tmp_path.iterdir())
