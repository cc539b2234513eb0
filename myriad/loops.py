"""Loops whose length only the data knows, written so that a GPU need not ask its host.

A GPU's runtime copies the condition of a loop to the host and waits for it in every pass, unless
the compiler knows the number of passes. So on a GPU a loop runs in blocks of a known length, and
what a block does beyond the end is not kept. On a CPU that costs time and gains nothing: there
these functions are JAX's own loops.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Carry = TypeVar("Carry")
State = TypeVar("State")
Rest = TypeVar("Rest")

# Long enough that a pass of the outer loop, some 15 us on an H100, is little of a block.
_LONGEST_BLOCK = 64
# Passes between two looks at a condition that depends on the data: half of them may be in vain.
_PASSES = 16


def waits_for_host() -> bool:
    """Return whether this device's runtime asks its host in every pass of a loop."""
    return jax.default_backend() == "gpu"


def repeat(
    num_steps: Any,
    body: Callable[[jax.Array, State, Rest], tuple[State, Rest]],
    state: State,
    rest: Rest,
    *,
    most: int,
    unroll: int = 1,
) -> tuple[State, Rest]:
    """Loop `state, rest = body(i, state, rest)` for `i` below `num_steps`.

    Args:
        num_steps: how many steps count, int32 scalar.
        body: takes the step's number, int32 scalar.
        state: what the steps that count lead to; those beyond them leave it alone.
        rest: what they may change, such as rows of a trajectory that nobody reads.
        most: the most that `num_steps` can be.
        unroll: steps that a GPU's compiler sees at once, and may fuse into one kernel.
    """
    if not waits_for_host():
        return jax.lax.fori_loop(0, num_steps, lambda i, carry: body(i, *carry), (state, rest))
    length = _block_length(most, unroll)

    def step(i: jax.Array, carry: tuple[State, Rest]) -> tuple[State, Rest]:
        new_state, rest = body(i, *carry)
        return _select(i < num_steps, new_state, carry[0]), rest

    def block(number: jax.Array, carry: tuple[State, Rest]) -> tuple[State, Rest]:
        first = number * length
        return jax.lax.fori_loop(
            0, length, lambda j, carry: step(first + j, carry), carry, unroll=unroll
        )

    num_blocks = (num_steps + length - 1) // length
    return jax.lax.fori_loop(0, num_blocks, block, (state, rest))


def repeat_or_skip(
    is_due: jax.Array, num_steps: int, body: Callable[[jax.Array, Carry], Carry], carry: Carry
) -> Carry:
    """Loop `carry = body(i, carry)` `num_steps` times where `is_due`, a boolean scalar, or not."""
    if not waits_for_host():
        return jax.lax.fori_loop(0, jnp.where(is_due, num_steps, 0), body, carry)

    def repeated(carry: Carry) -> Carry:
        return jax.lax.fori_loop(0, num_steps, body, carry)

    return jax.lax.cond(is_due, repeated, lambda carry: carry, carry)


def while_loop(
    condition: Callable[[Carry], jax.Array],
    body: Callable[[Carry], Carry],
    carry: Carry,
    *,
    unroll: int = 1,
) -> Carry:
    """Loop `carry = body(carry)` while `condition(carry)`, a boolean scalar, as JAX's own does.

    On a GPU the compiler sees `unroll` passes at once, and may fuse them into one kernel.
    """
    if not waits_for_host():
        return jax.lax.while_loop(condition, body, carry)

    def step(_: jax.Array, carry: Carry) -> Carry:
        return _select(condition(carry), body(carry), carry)

    def block(carry: Carry) -> Carry:
        return jax.lax.fori_loop(0, _PASSES, step, carry, unroll=unroll)

    return jax.lax.while_loop(condition, block, carry)


def _block_length(most: int, unroll: int) -> int:
    """Return the multiple of `unroll` that wastes the fewest steps, and of such the longest."""
    lengths = range(unroll, max(unroll, _LONGEST_BLOCK) + 1, unroll)
    return min(lengths, key=lambda length: (-(-most // length) * length, -length))


def _select(is_new: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda new, old: jnp.where(is_new, new, old), new, old)
