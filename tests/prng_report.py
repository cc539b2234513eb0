"""Run dieharder's full battery over a rollout's streams: `make prng-report`, half an hour an order.

The same words come in three orders, since a flaw may hide in any of them: all words of an
environment and step together (`word`), one word of all environments, step by step (`environment`),
one word of all steps, environment by environment (`step`).
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from myriad import make_key

# (steps, environments, words) of one block of the stream, and how its axes are turned.
ORDERS = {
    "word": ((64, 4096, 5), (0, 1, 2)),
    "environment": ((256, 4096, 1), (2, 0, 1)),
    "step": ((4096, 256, 1), (2, 1, 0)),
}

LAST_TEST = "dab_monobit2"


def stream(order: str) -> Iterator[bytes]:
    """Yield the stream block by block, without end."""
    (num_steps, num_envs, num_words), axes = ORDERS[order]

    @jax.jit
    def block(first: jax.Array) -> jax.Array:
        def words(step: jax.Array, env_index: jax.Array) -> jax.Array:
            key = jax.random.fold_in(jax.random.fold_in(make_key(7), 1), step)
            return jax.random.bits(jax.random.fold_in(key, env_index), (num_words,))

        steps, env_indices = (jnp.arange(size, dtype=jnp.uint32) for size in (num_steps, num_envs))
        drawn = jax.vmap(jax.vmap(words, (None, 0)), (0, None))(first + steps, env_indices)
        return jnp.transpose(drawn, axes)

    first = 0
    while True:
        yield np.ascontiguousarray(block(np.uint32(first))).tobytes()
        first += num_steps


def passes(order: str) -> bool:
    """Run the battery on one order, printing its table, and return whether no test failed."""
    command = [sys.executable, __file__, "--stream", order]
    failed = is_whole = False
    with subprocess.Popen(command, stdout=subprocess.PIPE) as source:
        with subprocess.Popen(
            ["dieharder", "-a", "-g", "200"],
            stdin=source.stdout,
            stdout=subprocess.PIPE,
            text=True,
        ) as battery:
            for line in battery.stdout:
                print(line, end="", flush=True)
                failed |= "FAILED" in line
                is_whole |= LAST_TEST in line
        source.kill()
    # A battery that was cut short must not pass for one that found nothing.
    return is_whole and not failed and not battery.returncode


def main() -> int:
    """Print the battery's tables; return 1 if a test failed, and 2 if dieharder is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--order", choices=ORDERS, nargs=1, help="only this order")
    parser.add_argument("--stream", choices=ORDERS, help="write this stream to stdout instead")
    options = parser.parse_args()
    if options.stream:
        try:
            for block in stream(options.stream):
                sys.stdout.buffer.write(block)
        except BrokenPipeError:
            return 0
    if shutil.which("dieharder") is None:
        print("dieharder is missing: apt install dieharder", file=sys.stderr)
        return 2
    passed = [passes(order) for order in options.order or ORDERS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
