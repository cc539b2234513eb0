"""Whether a training fits into memory, and if not, what would."""

from myriad.errors import InvalidArgumentError
from myriad.training.config import ResolvedConfig
from myriad.training.memory import StateSize, most_bytes, stated_bytes_within


def require_fit(
    resolved: ResolvedConfig, size: StateSize, room: int, programs: int | None = None
) -> None:
    """Raise unless a training fits into `room` bytes.

    Args:
        resolved: the training.
        size: of its state.
        room: bytes that it may take.
        programs: bytes that the compiler states; None before that, when only the state is known.

    Raises:
        InvalidArgumentError: it doesn't fit. The message says what would.
    """
    config = resolved.config
    num_envs = resolved.num_envs
    state = size.bytes(num_envs)
    stated = state if programs is None else programs
    needed = most_bytes(stated)
    if needed <= room:
        return
    # Programs need this many times the state. A hundredth is left for what doesn't grow with it.
    share = 1.01 * max(1.0, stated / state)
    fits = int(stated_bytes_within(room) / share)
    fewer = size.most_envs(fits)
    at_most = "fewer than" if programs is None else "at most about"
    remedies = (
        [f"{at_most} {fewer:,} environments fit"] if fewer else ["not even one environment fits"]
    )
    if config.buffer_size is not None and size.fixed > fits / 2:
        left = max(0, fits - size.per_env * num_envs)
        smaller = config.buffer_size * left // max(1, size.fixed)
        remedies.append(f"or a buffer_size of about {smaller:,}")
    raise InvalidArgumentError(
        f"No valid chunk_size found for {num_envs:,} environments of {config.env} "
        f"with {config.agent}: they need {readable_bytes(needed)} of memory, "
        f"and {readable_bytes(max(0, room))} are free; {', '.join(remedies)}."
    )


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in MiB, GiB or TiB."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / (1 << 20):,.0f} MiB"
