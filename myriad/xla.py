"""What the compiler knows about a program: its bytes, its operations and its compilations.

Nothing here runs or allocates anything. The trainer, its memory model, `check_env` and the
benchmarks of compilation and memory call it.
"""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from myriad.engine import machine
from myriad.engine.fusion import largest_factor_bytes, output_fusion
from myriad.engine.random import from_numbers, numbers_of
from myriad.engine.vector_math import vectorized
from myriad.errors import InvalidArgumentError

# `%name = type opcode(operands)`. A tuple's type has spaces and parentheses of its own, but none of
# them around a word.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = .*? ([a-z][a-z0-9-]*)\(.*$", re.MULTILINE)
_KNOWN_PASSES = "known_trip_count"
# The most bytes of compiled programs that are kept, and JAX's names of their files.
_CACHE_BYTES = 2_000_000_000
_PROGRAM = re.compile(r".+-[0-9a-f]{64}-cache")
_COMPILATION = "/jax/core/compile/backend_compile_duration"
# Besides its programs, a process holds the threads of the interpreter and of XLA, code, and a copy
# of a report.
_BESIDE_PROGRAMS = 32 << 20
# On a CPU, a matrix product copies its factors into the order in which it reads them, and the
# compiler's figures leave these copies out. The gradients of an actor and of a critic run side by
# side: 4 to 6.5 copies were measured.
_COPIES = 6
# Leave a hundredth for memory that doesn't grow with the numbers, so that the number that a message
# suggests is not refused in turn.
_MARGIN = 0.99


@dataclass(frozen=True)
class ProgramReport:
    """One compiled program, on one of its devices.

    Attributes:
        argument_bytes: arguments, including donated ones.
        output_bytes: results, including those written over donated arguments.
        temp_bytes: buffers that live only inside the call.
        alias_bytes: results written over donated arguments.
        generated_code_bytes: machine code; 0 on a CPU, where XLA doesn't say.
        instructions: instructions of the optimised HLO, including those inside fusions.
        fusions: fused kernels.
        open_loops: loops whose number of passes the compiler doesn't know. A GPU's runtime asks its
            host in every pass of such a loop.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    generated_code_bytes: int
    instructions: int
    fusions: int
    open_loops: int

    @property
    def peak_bytes(self) -> int:
        """The most bytes that the call needs at a time."""
        # A result that is written over an argument needs no memory of its own.
        return self.argument_bytes + self.output_bytes + self.temp_bytes - self.alias_bytes


def describe(compiled: jax.stages.Compiled) -> ProgramReport:
    """Report on a compiled program, without running it.

    Args:
        compiled: the result of `jax.jit(fn).lower(*args).compile()`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> add = jax.jit(lambda x: x + 1, donate_argnums=0)
        >>> describe(add.lower(jnp.zeros(1000)).compile()).peak_bytes
        4000
    """
    memory: Any = compiled.memory_analysis()
    return ProgramReport(
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        generated_code_bytes=memory.generated_code_size_in_bytes,
        **_count_operations(compiled.as_text() or ""),
    )


def _count_operations(hlo: str) -> dict[str, int]:
    lines = [(match[1], match[0]) for match in _INSTRUCTION.finditer(hlo)]
    return {
        "instructions": len(lines),
        "fusions": sum(opcode == "fusion" for opcode, _ in lines),
        "open_loops": sum(
            opcode == "while" and _KNOWN_PASSES not in line for opcode, line in lines
        ),
    }


@dataclass(frozen=True)
class Stated:
    """Bytes of a program on one device as the compiler states them, or 0 if it states nothing."""

    arguments: int = 0
    results: int = 0
    aliases: int = 0
    temporaries: int = 0

    @property
    def beside_arguments(self) -> int:
        """Bytes that a call holds in addition to its arguments."""
        return self.temporaries + self.results - self.aliases

    @classmethod
    def of(cls, compiled: jax.stages.Compiled, traced: jax.stages.Traced | None = None) -> "Stated":
        """Ask the compiler. If `traced` is given, copies of matrices count as temporaries, too."""
        # Not through `describe`, which also reads the whole program and takes longer.
        stats = compiled.memory_analysis()
        if stats is None:
            return cls()
        copied = 0
        if traced is not None and machine.resolve_platform() == "cpu":
            copied = _COPIES * largest_factor_bytes(traced.jaxpr.jaxpr)
        return cls(
            stats.argument_size_in_bytes,
            stats.output_size_in_bytes,
            stats.alias_size_in_bytes,
            stats.temp_size_in_bytes + copied,
        )


def bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, from their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by dotted name, such as `agent.params`, in its order."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(at, simple=True, separator="."): leaf for at, leaf in paths}


def arrays_by_name(tree: Any) -> dict[str, jax.Array]:
    """Return the leaves by name as orbax takes them: without empty ones, and keys as numbers."""
    return {name: numbers_of(leaf) for name, leaf in named_leaves(tree).items() if leaf.size}


def most_bytes(programs: int) -> int:
    """Return the most bytes of a process whose programs state `programs` bytes."""
    # The allocator was measured to add 3%.
    return programs + programs // 25 + _BESIDE_PROGRAMS


def stated_bytes_within(room: int) -> int:
    """Return the bytes that programs may state if their process is to fit into `room` bytes.

    The inverse of `most_bytes`.
    """
    return max(0, (room - _BESIDE_PROGRAMS) * 25 // 26)


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in MiB, GiB or TiB."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / (1 << 20):,.0f} MiB"


def require_room(
    subject: str, stated: int, remedy: Callable[[int], str], room: int | None = None
) -> None:
    """Raise unless programs fit into memory.

    Args:
        subject: what needs the memory, in the plural.
        stated: bytes that the programs hold at once, as the compiler states them.
        remedy: called with the bytes that programs may state; returns what would fit.
        room: bytes that the process may take; by default all that are free.

    Raises:
        InvalidArgumentError: they don't fit.
    """
    room = machine.available_bytes() if room is None else room
    needed = most_bytes(stated)
    if needed > room:
        fitting = remedy(int(_MARGIN * stated_bytes_within(room)))
        raise InvalidArgumentError(
            f"{subject} need {readable_bytes(needed)} of memory, "
            f"and {readable_bytes(max(0, room))} are free; {fitting}."
        )


def require_room_for(
    number: int,
    stated: int,
    held: int = 0,
    *,
    what: str = "environments",
    doing: str = "",
    at_most: str = "at most about",
) -> None:
    """Raise unless programs over many equal things fit into memory.

    Args:
        number: how many things.
        stated: bytes that the programs hold, as the compiler states them.
        held: how many of these bytes are in memory already.
        what: what the things are, in the plural.
        doing: what is done with them, for the message.
        at_most: the words before the number that fits.

    Raises:
        InvalidArgumentError: they don't fit. The message says how many would.
    """
    require_room(
        f"{doing}{number:,} {what}",
        stated,
        lambda room: f"{at_most} {int(number * room / stated):,} {what} fit",
        machine.available_bytes() + held,
    )


class OuterJit:
    """`jax.jit(fn, compiler_options=options, **kwargs)` that also works inside another program.

    JAX refuses options of a nested program. There, the options of the outer program apply.

    Args:
        fn: the function.
        options: the compiler's options.
        require: called with the compiled program before it runs for the first time. It may raise.
        **kwargs: arguments of `jax.jit`.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        options: dict[str, str],
        require: Callable[[jax.stages.Compiled], None],
        **kwargs: Any,
    ):
        self._require = require
        self._has_run = False
        self._inside = jax.jit(fn, **kwargs)
        self._outside = jax.jit(fn, compiler_options=options, **kwargs)
        self._built_under = get_opaque_trace_state()
        self.lower = self._outside.lower

    def __call__(self, *args: Any) -> Any:
        # An outer program that closes over the arguments traces this call without tracers in them.
        is_inside = get_opaque_trace_state() != self._built_under or any(
            isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)
        )
        if is_inside:
            return self._inside(*args)
        if not self._has_run:
            # JAX keeps this program for the call.
            self._require(self.lower(*args).compile())
            self._has_run = True
        return self._outside(*args)


def jit(
    function: Callable[..., Any], *, donate_argnums: int | Sequence[int] = ()
) -> Callable[..., Any]:
    """Compile a loop of your own as `Rollout` compiles its chunk.

    On a CPU, sines, draws and small vectors in the loop become operations that XLA vectorises, and
    after `configure` the program gets the compiler options that suit its operations. Elsewhere it
    is `jax.jit`. Arguments must be arrays, or trees of them: bind others by `functools.partial`.

    Args:
        function: the function.
        donate_argnums: arguments whose memory the results may take, as for `jax.jit`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from myriad import jit
        >>> @jit
        ... def steps(x):
        ...     return jax.lax.fori_loop(0, 3, lambda _, x: x + jnp.sin(x), x)
        >>> steps(jnp.ones(2)).shape
        (2,)
    """

    def traced(*args: Any) -> Any:
        return vectorized(function)(*args)

    plain = jax.jit(traced)
    chosen: list[OuterJit] = []

    @wraps(function)
    def run(*args: Any) -> Any:
        if not chosen:
            options = output_fusion(lambda: plain.trace(*args).jaxpr, 1)
            require = lambda _: None  # noqa: E731  (who writes the loop knows its memory)
            chosen.append(OuterJit(traced, options, require, donate_argnums=donate_argnums))
        return chosen[0](*args)

    return run


def result_shapes(traced: jax.stages.Traced) -> Any:
    """Return the shapes of a program's results, to compile a program that takes them.

    This is like `eval_shape`, but the sharding of a result says if it is in the host's memory.
    """

    def shape_of(aval: Any) -> jax.ShapeDtypeStruct:
        sharding = None
        if aval.memory_space is jax.memory.Space.Host:
            # JAX 0.10.2 ignores the memory kind of a SingleDeviceSharding.
            mesh = Mesh(jax.local_devices()[:1], ("device",))
            sharding = NamedSharding(mesh, PartitionSpec(), memory_kind="pinned_host")
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)

    structure = jax.tree.structure(traced.out_info)
    return structure.unflatten(map(shape_of, traced.jaxpr.out_avals))


def require_alive(name: str, tree: Any) -> None:
    """Raise if an array of a tree was donated to a call, so that its memory holds something else.

    Raises:
        InvalidArgumentError: one was.
    """
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    if any(each.is_deleted() for each in arrays if not isinstance(each, Tracer)):
        raise InvalidArgumentError(
            name,
            "was used after it was passed to a call that donates it, such as run; "
            "use what that call returned.",
        )


def put_everywhere(tree: Any, sharding: NamedSharding) -> Any:
    """Put values that are equal in all processes on all devices of a sharding, whole on each.

    Args:
        tree: arrays, which may be keys.
        sharding: the fully replicated sharding of a mesh.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    # JAX puts an array on devices of other processes only by a callback, and a key not at all.
    def put(leaf: Any) -> jax.Array:
        words = np.asarray(numbers_of(leaf))
        array = jax.make_array_from_callback(words.shape, sharding, lambda at: words[at])
        return from_numbers(array, leaf)

    return jax.tree.map(put, tree)


def is_on_host(array: Any) -> bool:
    """Return whether an array, or one of such a shape, lies in the host's memory."""
    return jax.typeof(array).memory_space is jax.memory.Space.Host


@dataclass
class Compilations:
    """The names of the programs that XLA compiled, such as `jit(step)`, in their order."""

    names: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.names)


def default_dtype() -> str:
    """Return the float type of arrays by default: float32, or float64 under `jax_enable_x64`."""
    return str(jnp.result_type(float))


def matmul_precision() -> str:
    """Return the precision of matrix products that `jax_default_matmul_precision` sets."""
    return jax.config.values["jax_default_matmul_precision"] or "default"


def use_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in `folder`, even small ones, unless you have chosen another folder.

    If the folder holds more than 2 GB, the programs that were used longest ago are deleted. You can
    set another limit with `jax_compilation_cache_max_size`. If the folder can't be made, a warning
    says why, and nothing is kept.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(
            f"compiled programs are not kept, since {folder} can't be made: {error.strerror}; "
            "set MYRIAD_COMPILATION_CACHE to another folder, or to off.",
            stacklevel=2,
        )
        return
    most_bytes = jax.config.values["jax_compilation_cache_max_size"]
    if most_bytes < 0 and "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        most_bytes = _CACHE_BYTES
    if most_bytes >= 0:
        with contextlib.suppress(OSError):  # Others' programs can be used without being deleted.
            _forget_programs(folder, most_bytes)
    # JAX would look at every file for each program that it keeps, 0.4 s for 10,000 of them. After a
    # process without this limit, or one that was killed while it wrote, it would keep none.
    jax.config.update("jax_compilation_cache_max_size", -1)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _forget_programs(folder: Path, most_bytes: int) -> None:
    """Delete JAX's files of a cache, those used longest ago first, until the rest fits."""
    left = 0
    programs = []
    for entry in os.scandir(folder):
        if _PROGRAM.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # Another process deletes, too.
                status = entry.stat()
                left += status.st_size
                programs.append((max(status.st_atime, status.st_mtime), entry.path, status.st_size))
    for _, path, size in sorted(programs):
        if left <= most_bytes:
            break
        Path(path).unlink(missing_ok=True)
        left -= size


@contextlib.contextmanager
def without_compilation_cache() -> Iterator[None]:
    """Compile the block's programs again, and don't keep them."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)  # noqa: FBT003
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


@contextlib.contextmanager
def count_compilations() -> Iterator[Compilations]:
    """Record the compilations of the whole process during the block.

    You can read the record during and after the block. An operation outside any jit is a program as
    well. Loading a program from the persistent cache counts, too.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def double(x):
        ...     return 2 * x
        >>> x = jnp.ones(3)
        >>> with count_compilations() as compilations:
        ...     first, second = jax.jit(double)(x), jax.jit(double)(x)
        >>> compilations.names
        ['jit(double)']
    """
    compilations = Compilations()

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == _COMPILATION:
            compilations.names.append(kwargs.get("fun_name", ""))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compilations
    finally:
        monitoring.unregister_event_duration_listener(listen)


def shard_map(
    function: Callable[..., Any], mesh: Mesh | AbstractMesh, in_specs: Any, out_specs: Any
) -> Any:
    """Return `jax.shard_map` of a function, around which leaves without elements go.

    jaxlib 0.11 dies of one on two devices. Each device makes its own, and so does the whole.
    """

    def of_all(*args: Any) -> Any:
        found_shapes: Any = None
        specs = jax.tree.broadcast(in_specs, args)

        def of_device(*shares: Any) -> Any:
            nonlocal found_shapes
            found = function(*_with_empty(shares, share_shapes))
            of_found = jax.tree.broadcast(out_specs, found)
            found_shapes = jax.tree.map(partial(_resized, int.__mul__), found, of_found)
            return _without_empty(found)

        share_shapes = jax.tree.map(partial(_resized, int.__floordiv__), args, specs)
        sharded = jax.shard_map(
            of_device, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
        return _with_empty(sharded(*_without_empty(args)), found_shapes)

    def _resized(by: Callable[[int, int], int], leaf: Any, spec: PartitionSpec) -> Any:
        axes = (*spec, *[None] * leaf.ndim)
        shape = [
            size if axis is None else by(size, mesh.size)
            for size, axis in zip(leaf.shape, axes, strict=False)
        ]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return of_all


def _without_empty(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, tree)


def _with_empty(tree: Any, shapes: Any) -> Any:
    held = iter(jax.tree.leaves(tree))
    return jax.tree.map(
        lambda leaf: next(held) if leaf.size else jnp.empty(leaf.shape, leaf.dtype), shapes
    )
