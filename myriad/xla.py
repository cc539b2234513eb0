"""What the compiler knows about a program: its bytes and its operations.

Nothing here runs or allocates anything. The trainer, its memory model, `check_env` and the
benchmarks of compilation and memory call it.
"""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from myriad.engine.devices import OuterJit
from myriad.engine.fusion import output_fusion
from myriad.engine.vector_math import vectorized

# `%name = type opcode(operands)`. A tuple's type has spaces and parentheses of its own, but none of
# them around a word.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = .*? ([a-z][a-z0-9-]*)\(.*$", re.MULTILINE)
_KNOWN_PASSES = "known_trip_count"
# The most bytes of compiled programs that are kept, and JAX's names of their files.
_CACHE_BYTES = 2_000_000_000
_PROGRAM = re.compile(r".+-[0-9a-f]{64}-cache")


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


def is_on_host(array: Any) -> bool:
    """Return whether an array, or one of such a shape, lies in the host's memory."""
    return jax.typeof(array).memory_space is jax.memory.Space.Host


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
