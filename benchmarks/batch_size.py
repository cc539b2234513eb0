"""Measure how many rows of experience gradient steps learn from in a second, by batch size.

    python benchmarks/batch_size.py                 128 to 16,384 rows, for every learner
    python benchmarks/batch_size.py --fast          every other size, fewer rounds
    python benchmarks/batch_size.py --agent dqn --env snake
    python benchmarks/batch_size.py --arm default --arm precision
    python benchmarks/batch_size.py --agent ppo --arm compile

An asv suite and a command line. All sizes and arms of an agent are timed in one process, in rounds
of random order. The arm `precision` computes networks in bfloat16. The arms `attention` and
`flash-attention` have an attention network in bfloat16 and need an environment on a grid. They
compute attention by XLA, or by cuDNN where a GPU has it. The arm `compile` passes 32 rows forward
and backward through the networks, both compiled and operation by operation. A size that would not
fit into memory is refused before it runs. The table marks the batch that `myriad autotune --tune
batch` would choose, which makes the same measurement.
"""

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite
from benchmarks.harness.results import Row, machine_columns, markdown, spread
from benchmarks.harness.workloads import Training
from benchmarks.runner import (
    Run,
    Script,
    agent,
    between,
    environment,
    readable,
    switch,
    text,
    whole,
)

AGENTS = ("ppo", "pqn", "dqn")
_ROUNDS, _FAST_ROUNDS = 15, 7
# cuDNN has attention in half precision alone.
_ATTENTION = {"agent.network": "attention", "agent.compute_dtype": "bfloat16"}
# The arms, which vary something besides the batch: their names, and the fields that they set.
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "precision": {"agent.compute_dtype": "bfloat16"},
    "attention": _ATTENTION | {"agent.attention": "xla"},
    "flash-attention": _ATTENTION | {"agent.attention": "auto"},
}
# The fields that give a gradient step of each agent so many rows.
ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "ppo": lambda rows: {"num_envs": rows // 16, "rollout_steps": 64, "agent.num_minibatches": 4},
    "dqn": lambda rows: {"batch_size": rows},
}

_COMPILE = "compile"
_COMPILE_ROWS = 32
_SAMPLE_S = 0.02


class BatchSize(AsvSuite):
    """Seconds that an update spends on learning, in gradient steps of many rows."""

    suite = "training"
    params: ClassVar = ["ppo", "dqn"]
    param_names: ClassVar = ["agent"]
    version = "1"
    batch_size = 4_096

    def name_of(self, param: str) -> str:
        return f"cartpole-{param}"

    def prepare(self, declared: Training) -> None:
        from myriad import create_config
        from myriad.programs import LearningProgram

        rows = ROWS[declared.agent](self.batch_size)
        config = create_config("cartpole-control", declared.agent, **rows)
        self.learning = LearningProgram(config)
        self.time_learn(declared.agent)

    def time_learn(self, agent: str) -> None:
        """Learn; the state is donated, so each call goes on from the last one's."""
        self.learning.run()

    def program(self, agent: str) -> Any:
        """Return the compiled gradient steps, for the gate."""
        return self.learning.compiled


def _measure(run: Run) -> None:
    import myriad

    options = run.options
    myriad.configure()
    for name in options.agent or AGENTS:
        _time_agent(options.env, name, run)


def _time_agent(env: str, agent: str, run: Run) -> None:
    """Time all sizes and arms of one agent, and print them."""
    from myriad import create_config
    from myriad.autotune.batch import SIZES, measure_arms, smallest_near_best

    options = run.options
    sizes = SIZES[::2] if options.fast else SIZES
    rounds = options.rounds or (_FAST_ROUNDS if options.fast else _ROUNDS)
    names = dict.fromkeys(options.arm or ["default"])
    configs = {name: create_config(env, agent, **ARMS[name]) for name in names if name in ARMS}
    rates = measure_arms(configs, sizes, rounds=rounds) if configs else {}
    chosen = [smallest_near_best(of_arm) for of_arm in rates.values()]
    rows: list[Row] = []
    lines = []
    for arm, rate in ((arm, rate) for arm, of_arm in rates.items() for rate in of_arm):
        measured: Row = {"status": "refused", "reason": rate.refused}
        shown = rate.refused
        if not rate.refused:
            ends = {"": rate.rows_per_s, "_low": rate.low, "_high": rate.high}
            measured = {f"steps_per_s{end}": value for end, value in ends.items()}
            measured["samples"] = rounds
            shown = between(measured, "steps_per_s", ",.0f")
        rows.append(_row(env, agent, arm, rate.batch_size, temp_bytes=rate.memory_bytes) | measured)
        mark = "chosen" if any(rate is best for best in chosen) else ""
        lines.append([arm, f"{rate.batch_size:,}", shown, readable(rate.memory_bytes), mark])
    for arm, measured in _measure_compile(env, agent, rounds) if _COMPILE in names else ():
        rows.append(_row(env, agent, arm, _COMPILE_ROWS) | measured)
        lines.append([arm, f"{_COMPILE_ROWS:,}", between(measured, "steps_per_s", ",.0f"), "-", ""])
    run.file.add(rows, {"agent": agent, "sizes": list(sizes), "arms": list(names)})
    print(f"\n{agent} on {env}\n")
    print(markdown(("arm", "rows", "rows/s (95% interval)", "memory", ""), lines))


def _row(env: str, agent: str, arm: str, size: int, **columns: Any) -> Row:
    batch = f"batch {size}"
    named = {"env": env, "agent": agent, "arm": batch if arm == "default" else f"{arm}, {batch}"}
    return machine_columns() | named | columns


def _measure_compile(env: str, agent: str, rounds: int) -> list[tuple[str, Row]]:
    """Time a forward and backward pass through an agent's networks, compiled and not, in turn."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from myriad import create_config, make_key
    from myriad.timing import compare

    config = create_config(env, agent)
    learner: Any = config.learner

    def loss(params: Any, obs: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(learner.outputs(params, obs)))

    gradient = jax.grad(loss)

    def uncompiled(*args: Any) -> Any:
        with jax.disable_jit():
            return gradient(*args)

    params = learner.init(make_key(0), num_envs=config.num_envs).params
    space = config.environment.observation_space(config.environment.default_params)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((_COMPILE_ROWS, math.prod(space.shape)), np.float32)
    arguments = (params, jnp.asarray(obs))
    sides = [functools.partial(side, *arguments) for side in (jax.jit(gradient), uncompiled)]
    found = compare(*sides, num_pairs=rounds, min_sample_s=_SAMPLE_S)
    return [
        (arm, spread([_COMPILE_ROWS / sample for sample in timing.samples_s], "steps_per_s"))
        for arm, timing in ((_COMPILE, found.a), (f"no-{_COMPILE}", found.b))
    ]


SCRIPT = Script(
    "batch_size",
    __doc__,
    _measure,
    {
        "--fast": switch("measure every other size in fewer rounds"),
        "--agent": text(
            f"an agent that learns (default: {', '.join(AGENTS)}; repeatable)",
            action="append",
            type=agent,
        ),
        "--arm": text(
            f"what is varied ({', '.join([*ARMS, _COMPILE])}; default: the first; repeatable)",
            action="append",
            choices=[*ARMS, _COMPILE],
        ),
        "--env": text("environment, or package.module:Class", "cartpole-control", type=environment),
        "--rounds": whole(f"rounds, each of which calls everything once (default: {_ROUNDS})"),
    },
    suite="batch_size",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
