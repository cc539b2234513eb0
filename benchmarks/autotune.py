"""Holds the autotuner to its promises: regret against an exhaustive sweep, and no harm against the untuned default.

Run `python benchmarks/autotune.py`; it exits with 1 where a promise is broken.
"""

import argparse
import dataclasses
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_ENVS = ("cartpole-control", "gene-circuit-control", "snake", "cartpole-sysid")
_AGENTS = ("dqn", "pqn", "ppo")
_SIZES = (64, 4096)
_SWEEP_SECONDS = 6.0
_STEPS_PER_ENV = 10_000
_LEAST_SAMPLES = 6  # for an interval of 95%


@dataclasses.dataclass(frozen=True)
class Row:
    """One configuration: `regret` is the best chunk's speed over the chosen one's, on samples not used to pick it.

    `tuned` is the chosen chunk's speed over the default's, with its 95% interval.
    """

    env: str
    agent: str
    num_envs: int
    seconds: float
    default: int
    chosen: int
    best: int
    regret: float
    tuned: float
    tuned_low: float
    tuned_high: float


def measure(env: str, agent: str, num_envs: int) -> Row:
    """Tune one configuration from nothing, then sweep every chunk in one interleaved run of the trainer's loop."""
    from myriad.autotune import ProfileCache, autotune
    from myriad.autotune.search import CANDIDATES, Stretch
    from myriad.compiled import CompiledTraining
    from myriad.config import make_config
    from myriad.timing import median_interval

    config = make_config(env, agent, num_envs, _STEPS_PER_ENV)
    with tempfile.TemporaryDirectory() as folder:
        cache, start = ProfileCache(Path(folder) / "profiles.json"), time.perf_counter()
        result = autotune(config, verbose=False, cache=cache)
        seconds = time.perf_counter() - start
    training = CompiledTraining(result.config)
    training.compile()
    stretch, default = Stretch(training), config.resolve().scan_chunk_size or 1
    sizes = sorted({*CANDIDATES, default})
    rounds = stretch.rounds(sizes, _SWEEP_SECONDS)
    times = {size: [a_round[stretch.updates(size)] for a_round in rounds] for size in sizes}
    chosen = result.scan_chunk_size
    best, regret = _regret(times, chosen)
    ratios = [d / c for d, c in zip(times[default], times[chosen], strict=True)]
    interval = median_interval(ratios) if len(ratios) >= _LEAST_SAMPLES else (min(ratios), max(ratios))
    tuned = statistics.median(ratios), *interval
    return Row(env, agent, num_envs, seconds, default, chosen, best, regret, *tuned)


def _regret(times: dict[int, list[float]], chosen: int) -> tuple[int, float]:
    """Pick the sweep's winner on one half of the rounds, and return its time over the chosen's on the other."""
    order = list(range(len(times[chosen])))
    random.Random(0).shuffle(order)  # noqa: S311 (an order, no secret)
    picking, judging = order[::2], order[1::2]
    best = min(times, key=lambda size: statistics.median(times[size][i] for i in picking))
    return best, statistics.median(times[best][i] / times[chosen][i] for i in judging)


def configurations(quick: bool) -> Iterator[tuple[str, str, int]]:  # noqa: FBT001
    """Go through environments, agents and sizes; `quick` takes three of them."""
    grid = [(env, agent, size) for env in _ENVS for agent in _AGENTS for size in _SIZES]
    return iter(grid[:: len(grid) // 3][:3] if quick else grid)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python benchmarks/autotune.py", description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three configurations instead of all")
    parser.add_argument("--output", type=Path, help="CSV file, a row per configuration")
    options = parser.parse_args(argv)
    import myriad
    from myriad.tracking import Table

    myriad.configure()
    rows = []
    names = ("environment", "agent", "environments", "tuned in", "default", "chosen", "sweep's best")
    print(f"| {' | '.join(names)} | chosen / best | chosen / default |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for env, agent, size in configurations(options.quick):
        row = measure(env, agent, size)
        rows.append(row)
        print(
            f"| {env} | {agent} | {size:,} | {row.seconds:.1f} s | {row.default:,} | {row.chosen:,} | {row.best:,} | "
            f"{row.regret:.3f} | {row.tuned:.3f} ({row.tuned_low:.3f} to {row.tuned_high:.3f}) |",
            flush=True,
        )
    if options.output is not None:
        Table([dataclasses.asdict(row) for row in rows]).to_csv(options.output)
    regrets, tuned = [row.regret for row in rows], [row.tuned for row in rows]
    print(f"chosen / best: worst {min(regrets):.3f}, median {statistics.median(regrets):.3f}")
    print(f"chosen / default: worst {min(tuned):.3f}, median {statistics.median(tuned):.3f}")
    kept: Any = min(regrets) >= 0.95 and statistics.median(regrets) >= 0.98
    harmless = all(row.tuned_high >= 0.98 for row in rows) and statistics.median(tuned) >= 1.0
    return 0 if kept and harmless else 1


if __name__ == "__main__":
    sys.exit(main())
