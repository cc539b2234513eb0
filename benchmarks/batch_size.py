"""Measure how many rows of experience gradient steps learn from in a second, by batch size.

    python benchmarks/batch_size.py                 128 to 16,384 rows, for every learner
    python benchmarks/batch_size.py --fast          every other size, fewer rounds
    python benchmarks/batch_size.py --agent dqn --env snake
    python benchmarks/batch_size.py --variant default --variant precision

All sizes and variants of an agent are timed in one process, in rounds of random order. The variant
`precision` computes networks in bfloat16. `attention` and `flash-attention` have an attention
network in bfloat16 and need an environment on a grid. They compute attention by XLA, or by cuDNN
where a GPU has it. A size that would not fit into memory is refused before it runs. The table marks
the batch that `myriad autotune --tune batch` would choose, which makes the same measurement.
"""

import sys
from typing import Any

from benchmarks.harness.results import Row, machine_columns
from benchmarks.harness.tables import between, markdown, readable
from benchmarks.runner import Run, Script, agent, environment, switch, text, whole

AGENTS = ("ppo", "pqn", "dqn")
_ROUNDS, _FAST_ROUNDS = 15, 7
# cuDNN has attention in half precision alone.
_ATTENTION = {"agent.network": "attention", "agent.compute_dtype": "bfloat16"}
# The variants of a training: their names, and the fields that they set.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "precision": {"agent.compute_dtype": "bfloat16"},
    "attention": _ATTENTION | {"agent.attention": "xla"},
    "flash-attention": _ATTENTION | {"agent.attention": "auto"},
}


def _measure(run: Run) -> None:
    import myriad

    myriad.configure()
    for name in run.options.agent or AGENTS:
        _time_agent(run.options.env, name, run)


def _time_agent(env: str, agent: str, run: Run) -> None:
    """Time all sizes and variants of one agent, and print them."""
    from myriad import create_config
    from myriad.autotune.batch import SIZES, measure_arms, smallest_near_best

    options = run.options
    sizes = SIZES[::2] if options.fast else SIZES
    rounds = options.rounds or (_FAST_ROUNDS if options.fast else _ROUNDS)
    names = dict.fromkeys(options.variant or ["default"])
    configs = {name: create_config(env, agent, **VARIANTS[name]) for name in names}
    columns = machine_columns() | {"env": env, "agent": agent}
    rows: list[Row] = []
    lines = []
    for variant, rates in measure_arms(configs, sizes, rounds=rounds).items():
        chosen = smallest_near_best(rates)
        for rate in rates:
            batch = f"batch {rate.batch_size}"
            name = batch if variant == "default" else f"{variant}, {batch}"
            row = columns | {"arm": name, "temp_bytes": rate.memory_bytes}
            if rate.refused:
                row |= {"status": "refused", "reason": rate.refused}
            else:
                ends = {"": rate.rows_per_s, "_low": rate.low, "_high": rate.high}
                row |= {f"steps_per_s{end}": value for end, value in ends.items()}
                row["samples"] = rounds
            rows.append(row)
            shown = rate.refused or between(row, "steps_per_s", ",.0f")
            mark = "chosen" if rate is chosen else ""
            memory = readable(rate.memory_bytes)
            lines.append([variant, f"{rate.batch_size:,}", shown, memory, mark])
    run.file.add(rows, {"agent": agent, "sizes": list(sizes), "variants": list(names)})
    print(f"\n{agent} on {env}\n")
    print(markdown(("variant", "rows", "rows/s (95% interval)", "memory", ""), lines))


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
        "--variant": text(
            f"what is varied ({', '.join(VARIANTS)}; default: the first; repeatable)",
            action="append",
            choices=[*VARIANTS],
        ),
        "--env": text("environment, or package.module:Class", "cartpole-control", type=environment),
        "--rounds": whole(f"rounds, each of which calls everything once (default: {_ROUNDS})"),
    },
    suite="batch_size",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
