"""A short tour of Myriad's speed: run it with `python examples/10_performance_demo.py`.

It steps CartPole at three sizes, asks the autotuner for the chunk of a training, and trains an
agent until it solves the task. Every figure is of this run alone: `make bench` measures with
intervals, beside gymnax.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence

import myriad
from myriad import hardware, timing
from myriad.autotune import autotune

SIZES = {1_000: 256, 10_000: 256, 100_000: 128}  # environments, and the steps in one compiled call


def step(num_envs: int, scan_chunk_size: int, num_samples: int) -> str:
    """Step CartPole under random actions and say how fast that was."""
    env = myriad.make_env("cartpole-control")
    rollout = myriad.Rollout(env, myriad.make_agent("random", env), num_envs, scan_chunk_size)
    state = rollout.init(seed=0)

    def chunk() -> object:
        nonlocal state
        state = rollout.run_chunk(state)
        return state

    measured = timing.measure(chunk, num_samples=num_samples)
    steps = num_envs * scan_chunk_size
    rate = steps / measured.median_s
    low = steps / measured.high_s
    high = steps / measured.low_s
    return (
        f"{num_envs:>9,} environments: {rate / 1e6:8.1f} million steps/s "
        f"({low / 1e6:.1f} to {high / 1e6:.1f}), compiled in {measured.compile_s:.2f} s"
    )


def train(target: float, num_seeds: int) -> str:
    """Train PPO until an evaluation reaches the target, once per seed, and say how long it took."""
    seconds = []
    steps = []
    for seed in range(num_seeds):
        config = myriad.create_config("cartpole-control", "ppo", target_return=target, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            results = myriad.train_and_evaluate(config, f"{folder}/run", quiet=True)
        seconds.append(results.timings.total_s)
        steps.append(results.evaluations[-1]["steps"])
    return (
        f"PPO reached {target:g} after {statistics.median(steps):,.0f} steps, in "
        f"{statistics.median(seconds):.2f} s "
        f"({min(seconds):.2f} to {max(seconds):.2f} over {num_seeds} seeds; compilation "
        "included, or its cache read)"
    )


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = print) -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer samples, the smallest size, one seed"
    )
    quick = parser.parse_args(argv).quick
    myriad.configure()
    try:
        hardware.require_usable_jax()
    except myriad.MyriadError as error:
        parser.exit(2, f"{error}\n")
    machine = hardware.fingerprint()
    say(
        f"Myriad {myriad.__version__} on {machine.device_name}, {machine.cores} cores "
        f"({machine.device_kind})\n"
    )
    for num_envs, scan_chunk_size in list(SIZES.items())[: 1 if quick else None]:
        say(step(num_envs, scan_chunk_size, num_samples=6 if quick else 21))
    say("\nThe autotuner, for DQN in 1,000 environments:")
    say(
        str(autotune(myriad.create_config("cartpole-control", "dqn", 1_000, 10_000), verbose=False))
    )
    say("")
    say(train(475.0, num_seeds=1 if quick else 5))


if __name__ == "__main__":
    main()
