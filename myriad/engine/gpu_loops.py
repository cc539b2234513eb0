"""Loops whose length depends on the data, written so that a GPU need not ask its host.

Unless the compiler knows the number of passes, a GPU's runtime copies the condition of a loop to
the host and waits for it in every pass. So on a GPU a loop runs in blocks of a known length, and
results beyond the end are dropped. On a CPU that would only cost time. So there `repeat_or_skip`
and `while_loop` are JAX's own loops, and a rollout doesn't call `repeat`.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from myriad.engine.fusion import count_primitives

Carry = TypeVar("Carry")
State = TypeVar("State")
Rest = TypeVar("Rest")

# Long enough that a pass of the outer loop, about 15 us on an H100, is a small part of a block.
_LONGEST_BLOCK = 64
# Passes between two checks of a condition that depends on the data. Half of them may be wasted.
_PASSES = 16
# Unrolled steps become one kernel. On an H100, eight steps of CartPole were 3 to 4.5 times as fast
# as one, and compiling took 5 s. The operations in all unrolled steps are limited, since compiling
# takes longer with each of them.
_MOST_UNROLLED, _UNROLLED_OPERATIONS = 8, 2048

_INSIDE_KERNEL = contextvars.ContextVar("inside a kernel", default=False)


def waits_for_host() -> bool:
    """Return whether this device's runtime asks its host in every pass of a loop."""
    return jax.default_backend() == "gpu" and not _INSIDE_KERNEL.get()


@contextlib.contextmanager
def inside_kernel() -> Iterator[None]:
    """Trace the block's loops as parts of a kernel, which asks nobody."""
    token = _INSIDE_KERNEL.set(True)
    try:
        yield
    finally:
        _INSIDE_KERNEL.reset(token)


def repeat(
    num_steps: Any,
    body: Callable[[jax.Array, tuple[State, Rest]], tuple[State, Rest]],
    carry: tuple[State, Rest],
    *,
    most: int,
    unroll: int = 1,
) -> tuple[State, Rest]:
    """Loop `carry = body(i, carry)` for `i` below `num_steps`, in blocks.

    Args:
        num_steps: how many steps count, int32 scalar.
        body: takes the step's number, int32 scalar.
        carry: a state, which only steps that count change, and values that later steps may change
            as well, such as rows of a trajectory that are never read.
        most: the largest possible `num_steps`.
        unroll: steps that a GPU's compiler sees at once, and may fuse into one kernel.
    """
    length = _block_length(most, unroll)

    def step(i: jax.Array, carry: tuple[State, Rest]) -> tuple[State, Rest]:
        new_state, rest = body(i, carry)
        return _select(i < num_steps, new_state, carry[0]), rest

    def block(number: jax.Array, carry: tuple[State, Rest]) -> tuple[State, Rest]:
        first = number * length
        return jax.lax.fori_loop(
            0, length, lambda j, carry: step(first + j, carry), carry, unroll=unroll
        )

    num_blocks = (num_steps + length - 1) // length
    return jax.lax.fori_loop(0, num_blocks, block, carry)


def affordable_unroll(step: Jaxpr) -> int:
    """Return how many steps of a rollout become one kernel."""
    primitives = count_primitives(step)
    # With a loop in a step, every step goes back to the runtime anyway.
    if primitives["while"] or primitives["scan"]:
        return 1
    affordable = max(1, _UNROLLED_OPERATIONS // primitives.total())
    return min(_MOST_UNROLLED, 1 << (affordable.bit_length() - 1))


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
    """Return the longest multiple of `unroll` among those that waste the fewest steps."""
    lengths = range(unroll, max(unroll, _LONGEST_BLOCK) + 1, unroll)
    return min(lengths, key=lambda length: (-(-most // length) * length, -length))


def _select(is_new: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda new, old: jnp.where(is_new, new, old), new, old)
