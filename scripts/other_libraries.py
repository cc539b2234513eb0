"""Try environments of other libraries: make, check, train, evaluate and film each by its name.

    python scripts/other_libraries.py brax:inverted_pendulum jumanji:Snake-v1

Each prints a row with the CPU seconds of each stage and the mean return. Whatever isn't installed
is skipped with the reason.
"""

import argparse
import importlib.metadata
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import myriad
from myriad.envs.checker import check_env
from myriad.errors import FaultyEnvironmentError, NotInstalledError
from myriad.rendering.video import record

_COLUMNS = ("environment", "make", "check", "train", "evaluate", "film", "return", "random's")


def cells(name: str, total_steps: int, folder: Path) -> Iterator[str]:
    """Yield the CPU seconds of each stage once it is over, then the returns."""
    start = time.process_time()
    env = myriad.make_env(name)
    yield f"{time.process_time() - start:.0f}"

    start, faults = time.process_time(), ()
    try:
        check_env(env)
    except FaultyEnvironmentError as error:
        faults = error.faults
        print(f"{name}: {error}", file=sys.stderr)
    yield f"{time.process_time() - start:.0f}{f' ({len(faults)} faults)' if faults else ''}"

    start = time.process_time()
    config = myriad.create_config(name, "ppo", total_steps=total_steps)
    results = myriad.train_and_evaluate(config, folder / "run", quiet=True)
    yield f"{time.process_time() - start:.0f}"

    start = time.process_time()
    returns = myriad.evaluate(config, results.agent_state)
    yield f"{time.process_time() - start:.0f}"

    start = time.process_time()
    if hasattr(env, "render"):
        _, env, agent = myriad.load_agent(folder / "run")
        record(env, agent, folder / "film.gif", num_steps=50)
        yield f"{time.process_time() - start:.0f}"
    else:
        yield "no `render`"

    random = myriad.evaluate(config.changed(agent="random"), None)
    yield from (f"{returns.mean():.4g}", f"{random.mean():.4g}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each name."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("names", nargs="+", metavar="PREFIX:NAME")
    parser.add_argument("--total-steps", type=int, default=200_000)
    options = parser.parse_args(argv)
    myriad.configure()
    warnings.simplefilter("ignore")  # These libraries warn of each other.
    print(f"CPU seconds, with jax {importlib.metadata.version('jax')}\n")
    print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
    for name in options.names:
        print(f"| `{name}` |", end="", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                for cell in cells(name, options.total_steps, Path(folder)):
                    print(f" {cell} |", end="", flush=True)
            except NotInstalledError as error:
                print(f" skipped: {error} |", end="")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
