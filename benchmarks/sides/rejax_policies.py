"""Train with rejax and save the policies, in rejax's own Python (see harness/peers.py).

    python -m benchmarks.sides.rejax_policies <request> <policies>

The request is JSON with rejax's names of environment and algorithm, its hyperparameters and seeds.
It may hold `seconds` instead of `total_timesteps`, for a training of as many steps as fit into that
time. The policies are NumPy arrays in one file, seed by seed.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.harness.worker import end_with_parent

# Steps of the trainings that find how many steps fit into the seconds. A step of DQN copies the
# whole buffer, which takes about a thousand times as long as a step of PPO.
_TRIED_STEPS = (4_096, 131_072)


def trainer(request: dict[str, Any], num_steps: int) -> Any:
    """Compile a whole training: a function from a seed to the final state."""
    import rejax  # type: ignore[import-not-found]  # asv imports this file where there is none

    algorithm = rejax.get_algo(request["agent"]).create(
        env=request["env"],
        **request["hyperparameters"] | {"total_timesteps": num_steps, "eval_freq": num_steps},
    )
    algorithm = algorithm.replace(eval_callback=lambda *_: (), skip_initial_evaluation=True)
    train = jax.jit(lambda seed: algorithm.train(jax.random.key(seed))[0])
    return train.lower(np.int32(0)).compile()


def timed(train: Any, seed: int) -> tuple[Any, float]:
    """Return a training state and the seconds it took."""
    start = time.perf_counter()
    state = jax.block_until_ready(train(np.int32(seed)))
    return state, time.perf_counter() - start


def num_steps_in(request: dict[str, Any]) -> int:
    """Return how many steps a training makes in the requested seconds."""
    most_steps = 0
    for tried in _TRIED_STEPS:
        _, seconds = timed(trainer(request, tried), 0)
        most_steps = round(tried * request["seconds"] / seconds)
        if most_steps < _TRIED_STEPS[-1]:
            break
    return max(_TRIED_STEPS[0], most_steps)


def arrays_of(agent: str, state: Any) -> dict[str, np.ndarray]:
    """Return a policy's layers in the order of their use, and its observation moments."""
    params = (state.actor_ts if agent == "ppo" else state.q_ts).params["params"]
    layers = dict(params.get("features", {}))
    # A Gaussian policy has its own standard deviation, which is not a layer.
    layers |= {
        name: value
        for name, value in params.items()
        if isinstance(value, dict) and "kernel" in value
    }
    # Hidden layers are numbered. The output layer has its own name or the highest number.
    ordered = sorted(layers, key=lambda name: (not name.startswith("Dense_"), name))
    arrays = {"mean": state.obs_rms_state.mean, "var": state.obs_rms_state.var}
    for i, name in enumerate(ordered):
        arrays |= {f"kernel{i}": layers[name]["kernel"], f"bias{i}": layers[name]["bias"]}
    return {name: np.asarray(value) for name, value in arrays.items()}


def main() -> None:
    """Train every seed and write the file."""
    end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    num_steps = request["num_steps"] or num_steps_in(request)
    train = trainer(request, num_steps)
    arrays = []
    seconds = []
    for seed in request["seeds"]:
        state, took = timed(train, seed)
        arrays.append(arrays_of(request["agent"], state))
        seconds.append(took)
    saved: dict[str, Any] = {name: np.stack([each[name] for each in arrays]) for name in arrays[0]}
    saved |= {"seconds": np.array(seconds), "num_steps": np.array(num_steps)}
    np.savez(sys.argv[2], **saved)


if __name__ == "__main__":
    main()
