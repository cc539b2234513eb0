"""The lowered program of a training's updates, which `myriad train` keeps to start sooner.

JAX finds what XLA compiled by the lowered program, and tracing and lowering that program take a
fifth of a warm start. Here it is found by all that it follows from. Code of yours could change it
unseen, so only the command keeps programs, and only those of Myriad's environments and agents.
`myriad.xla.use_compilation_cache` deletes them as it does JAX's.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from myriad import hardware, settings
from myriad.files import regular, replacing
from myriad.random import from_numbers, numbers_of
from myriad.training.loop import LearningLoop, Report, TrainState
from myriad.training.memory import product_bytes
from myriad.xla import output_fusion


def is_kept(config: Any) -> bool:
    """Return whether the program of a training is kept between processes."""
    named = (config.env, config.agent, config.agent_options.get("network", ""))
    here = (jax.default_backend(), jax.process_count(), config.num_devices)
    values = jax.config.values
    # In a folder of yours, JAX's own limit fails at a file that is not JAX's.
    folder = values["jax_enable_compilation_cache"] and values["jax_compilation_cache_dir"]
    return (
        settings.is_command
        and here == ("cpu", 1, 1)
        and folder == str(settings.compilation_cache())
        and not any(":" in name for name in named)
        # The text of an array leaves digits out, and that of an object says nothing.
        and not re.search(r"array\(| at 0x", repr(config.learner))
    )


def kept_run(loop: LearningLoop, state: Any, *others: Any) -> tuple[jax.stages.Traced, int]:
    """Return the traced `loop.run`, and its `product_bytes`. The arguments are those of `run`."""

    def of_arrays(leaves: list[Any], *others: Any) -> tuple[list[Any], dict[str, Any]]:
        after, report = loop.run(_like(state, leaves), *others)
        return _flat(after), vars(report)

    # Hyperparameters that are arguments of the program are no part of it.
    learner = dataclasses.replace(loop.learner, **dict.fromkeys(loop.options, 0))
    shapes = (jax.eval_shape(_flat, state), *others)
    digest = hashlib.sha256(repr((learner, loop.num_envs, shapes)).encode())
    environment = (hardware.package_versions(), settings.xla_flags(), settings.vector_math())
    digest.update(repr((environment, sorted(jax.config.values.items()))).encode())
    for source in sorted(Path(__file__).parents[1].rglob("*")):
        if source.suffix in (".py", ".toml"):
            digest.update(source.read_bytes())
    folder = Path(jax.config.values["jax_compilation_cache_dir"])
    path = folder / f"myriad_run-{digest.hexdigest()}-cache"
    found: Any = None
    # A file that is missing or damaged is made again.
    with contextlib.suppress(Exception), np.load(regular(path)) as file:
        exported = export.deserialize(bytearray(file["program"].tobytes()))
        found = exported, *json.loads(str(file["made"]))
    if found is None:
        jitted = jax.jit(of_arrays)
        traced = jitted.trace(*shapes)
        exported = export.export(jitted)(*shapes)
        made = output_fusion(lambda: traced.jaxpr), product_bytes(traced)
        found = exported, *made
        # Without flatbuffers, or room on the disk, nothing is kept.
        with contextlib.suppress(Exception), replacing(path) as new, new.open("wb") as file:
            data = np.frombuffer(exported.serialize(), np.uint8)
            np.savez(file, program=data, made=json.dumps(made))
    exported, options, most = found
    if b"lapack" not in exported.mlir_module_serialized:
        # JAX would import all of scipy's linear algebra for a program for CPUs.
        anywhere = (export.DisabledSafetyCheck.platform(),)
        exported = dataclasses.replace(
            exported, platforms=("any",), disabled_safety_checks=anywhere
        )

    def run(state: TrainState, *others: Any) -> tuple[TrainState, Report]:
        leaves, report = exported.call(_flat(state), *others)
        return _like(state, leaves), Report(**report)

    program: Any = jax.jit(run, donate_argnums=0, compiler_options=options)
    return program.trace(state, *others), most


def _flat(tree: Any) -> list[Any]:
    """Return the leaves as JAX can write them, with keys as numbers."""
    return [numbers_of(leaf) for leaf in jax.tree.leaves(tree)]


def _like(tree: Any, leaves: list[Any]) -> Any:
    """Return a tree of the leaves that `_flat` returns for one like it."""
    likes, structure = jax.tree.flatten(tree)
    return structure.unflatten(map(from_numbers, leaves, likes))
