"""Train with rejax and return the policies, in rejax's own Python (see harness/peers.py).

    python -m benchmarks.libraries.rejax_policies <request>

The request is JSON with rejax's name of the environment, the agent and its hyperparameters. With
`seconds` a training has as many steps as fit into that time. The first reply is the number of
steps. Each line of stdin is then a seed, whose reply has the seconds and the policy.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.harness.worker import answer
from benchmarks.libraries.ppo_training import rejax_training

_LEAST_STEPS = 4_096  # rejax learns from a buffer once it holds 2,048 transitions


def trainer(request: dict[str, Any], num_steps: int) -> Any:
    """Compile a whole training: a function from a seed to the final state."""
    what = (request["agent"], request["env"], num_steps, request["hyperparameters"])
    algorithm = rejax_training(*what)
    train = jax.jit(lambda seed: algorithm.train(jax.random.key(seed))[0])
    return train.lower(np.int32(0)).compile()


def timed(train: Any, seed: int) -> tuple[Any, float]:
    """Return a training state and the seconds it took."""
    start = time.perf_counter()
    state = jax.block_until_ready(train(np.int32(seed)))
    return state, time.perf_counter() - start


def arrays_of(agent: str, state: Any) -> dict[str, np.ndarray]:
    """Return a policy's layers in the order of their use, and its observation moments."""
    params = (state.q_ts if agent == "dqn" else state.actor_ts).params["params"]
    layers = dict(params.get("features", {}))
    # PPO's standard deviation is no layer, and SAC's is one that a greedy policy doesn't use.
    layers |= {
        name: value
        for name, value in params.items()
        if isinstance(value, dict) and "kernel" in value and name != "action_log_std"
    }
    # Hidden layers are numbered. The output layer has its own name or the highest number.
    ordered = sorted(layers, key=lambda name: (not name.startswith("Dense_"), name))
    arrays = {"mean": state.obs_rms_state.mean, "var": state.obs_rms_state.var}
    for i, name in enumerate(ordered):
        arrays |= {f"kernel{i}": layers[name]["kernel"], f"bias{i}": layers[name]["bias"]}
    return {name: np.asarray(value) for name, value in arrays.items()}


def replies() -> Iterator[dict[str, Any]]:
    """Train each seed."""
    request = json.loads(sys.argv[1])
    num_steps = request["num_steps"]
    if request["seconds"]:
        _, seconds = timed(trainer(request, request["tried_steps"]), 0)
        fitting = round(request["tried_steps"] * request["seconds"] / seconds)
        num_steps = max(_LEAST_STEPS, fitting)
    train = trainer(request, num_steps)
    yield {"num_steps": num_steps}
    for line in sys.stdin:
        state, seconds = timed(train, json.loads(line)["seed"])
        policy = arrays_of(request["agent"], state)
        yield {
            "seconds": seconds,
            "policy": {name: value.tolist() for name, value in policy.items()},
        }


if __name__ == "__main__":
    answer(replies())
