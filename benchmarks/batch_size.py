"""Measure how many rows of experience gradient steps learn from in a second, by batch size.

    python benchmarks/batch_size.py                 128 to 16,384 rows, for every learner
    python benchmarks/batch_size.py --fast          every other size, fewer rounds
    python benchmarks/batch_size.py --agent dqn --env snake
    python benchmarks/batch_size.py --arm default --arm precision
    python benchmarks/batch_size.py --agent ppo --arm compile

An asv suite and a command line. All sizes and arms of an agent are timed in one process, in rounds
of random order. The arm `precision` computes networks in bfloat16. The arms `attention` and
`flash-attention` have an attention network, which computes its attention weights as a whole or in
blocks. They need an environment on a grid. The arm `compile` passes 32 rows forward and backward
through the networks, both compiled and operation by operation, as with `--no-compile`. A size that
would not fit into memory is refused before it runs. The plot marks the batch that `myriad autotune
--tune batch` would choose, which makes the same measurement.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import (
    Parser,
    command_of,
    count,
    guarded,
    readable,
    report,
    resolved_agent,
    resolved_env,
)
from benchmarks.harness.results import ResultsFile, Row, machine_columns, markdown, new_row
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import load
from benchmarks.plots.draw import draw_run

_SCRIPT = "benchmarks/batch_size.py"
AGENTS = ("ppo", "pqn", "dqn")
_ENV = "cartpole-control"
_ROUNDS, _FAST_ROUNDS = 15, 7
# The arms, which vary something besides the batch: their names, and the fields that they set.
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "precision": {"agent.compute_dtype": "bfloat16"},
    "attention": {"agent.network": "attention", "agent.attention": "xla"},
    "flash-attention": {"agent.network": "attention", "agent.attention": "chunked"},
}

_COMPILE = "compile"
_COMPILE_ROWS = 32
_SAMPLE_S = 0.02


class BatchSize:
    """Seconds that an update spends on learning, in gradient steps of many rows."""

    params: ClassVar = ["ppo", "dqn"]
    param_names: ClassVar = ["agent"]
    version = "1"
    timeout = 300
    batch_size = 4_096
    prepared = ""

    def setup(self, agent: str) -> None:
        """Compile and collect, once: asv calls this before every sample."""
        if self.prepared == agent:
            return
        skip_unless_runnable(load().trainings["training"][f"cartpole-{agent}"])
        with_batch = package.find("myriad.autotune.batch:with_batch")
        halves = package.find("myriad.training.halves:Halves")(
            with_batch(package.find("myriad:create_config")(_ENV, agent), self.batch_size).resolve()
        )
        self.block_until_ready = package.find("myriad.timing:block_until_ready")
        self.state, self.experience = halves.arguments()
        self.learn = halves.learn.lower(self.state, self.experience).compile()
        self.time_learn(agent)
        self.prepared = agent

    def time_learn(self, agent: str) -> None:
        """Learn; the state is donated, so each call goes on from the last one's."""
        self.state = self.block_until_ready(self.learn(self.state, self.experience))

    def program(self, agent: str) -> Any:
        """Return the compiled gradient steps, for the gate."""
        return self.learn


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    options = _parse(argv)
    env = resolved_env(options.env)
    file = ResultsFile("batch_size", options.output, command_of(_SCRIPT, argv))
    myriad.configure()
    for agent in options.agent or AGENTS:
        _measure(env, resolved_agent(agent), options, file)
    succeeded = report(file)
    draw_run(file, "batch_size", env)
    return succeeded


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--fast", action="store_true", help="measure every other size in fewer rounds"
    )
    parser.add_argument(
        "--agent",
        action="append",
        help=f"an agent that learns (default: {', '.join(AGENTS)}; repeatable)",
    )
    parser.add_argument(
        "--arm",
        action="append",
        choices=[*ARMS, _COMPILE],
        help=f"what is varied ({', '.join([*ARMS, _COMPILE])}; default: the first; repeatable)",
    )
    parser.add_env(_ENV)
    parser.add_argument(
        "--rounds",
        type=count,
        metavar="N",
        help=f"rounds, each of which calls everything once (default: {_ROUNDS})",
    )
    parser.add_output()
    return parser.parse_args(argv)


def _measure(env: str, agent: str, options: argparse.Namespace, file: ResultsFile) -> None:
    """Time all sizes and arms of one agent, and print them."""
    from myriad import create_config
    from myriad.autotune.batch import SIZES, BatchRate, measure_arms, smallest_near_best

    sizes = SIZES[::2] if options.fast else SIZES
    rounds = options.rounds or (_FAST_ROUNDS if options.fast else _ROUNDS)
    names = dict.fromkeys(options.arm or ["default"])
    configs = {name: create_config(env, agent, **ARMS[name]) for name in names if name in ARMS}
    rates = measure_arms(configs, sizes, rounds=rounds) if configs else {}
    chosen = [smallest_near_best(of_arm) for of_arm in rates.values()]
    if _COMPILE in names:
        rates |= _measure_compile(env, agent, rounds)
    rows: list[Row] = []
    lines = []
    each: list[tuple[str, BatchRate]] = [(arm, rate) for arm in rates for rate in rates[arm]]
    for arm, rate in each:
        measured: Row = {"status": "refused", "reason": rate.refused}
        shown = rate.refused
        if rate.rows_per_s is not None and rate.low is not None and rate.high is not None:
            measured = {
                "steps_per_s": rate.rows_per_s,
                "steps_per_s_low": rate.low,
                "steps_per_s_high": rate.high,
                "samples": rounds,
            }
            shown = f"{rate.rows_per_s:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})"
        batch = f"batch {rate.batch_size}"
        arm_name = batch if arm == "default" else f"{arm}, {batch}"
        columns = {"env": env, "agent": agent, "arm": arm_name}
        predicted = {"temp_bytes": rate.memory_bytes}
        rows.append(
            new_row(
                "batch_size", file.timestamp, **machine_columns() | columns | predicted | measured
            )
        )
        mark = "chosen" if any(rate is best for best in chosen) else ""
        lines.append([arm, f"{rate.batch_size:,}", shown, readable(rate.memory_bytes), mark])
    file.add_rows(rows, {"agent": agent, "sizes": list(sizes), "arms": list(names)})
    print(f"\n{agent} on {env}\n")
    print(markdown(("arm", "rows", "rows/s (95% interval)", "memory", ""), lines))


def _measure_compile(env: str, agent: str, rounds: int) -> dict[str, list[Any]]:
    """Time a forward and backward pass through an agent's networks, compiled and not, in turn."""
    import jax

    from myriad import create_config
    from myriad.autotune.batch import BatchRate
    from myriad.autotune.precision import gradient_pass, pass_arguments
    from myriad.timing import interleave, median_interval
    from myriad.timing.subject import Subject

    resolved = create_config(env, agent).resolve()
    gradient = gradient_pass(resolved.learner)
    arguments = pass_arguments(resolved, _COMPILE_ROWS)

    def uncompiled(*args: Any) -> Any:
        with jax.disable_jit():
            return gradient(*args)

    # Only the compiled pass states its memory, but so few rows fit anywhere.
    subjects = {
        _COMPILE: Subject(jax.jit(gradient), arguments),
        f"no-{_COMPILE}": Subject(uncompiled, arguments),
    }
    for subject in subjects.values():
        subject.prepare()
        subject.calibrate(_SAMPLE_S)
    samples = interleave(
        [each.sample_s for each in subjects.values()], least_rounds=rounds, most_rounds=rounds
    )
    rates = {}
    for name, seconds in zip(subjects, samples, strict=True):
        per_s = [_COMPILE_ROWS / sample for sample in seconds]
        low, high = median_interval(per_s, 0.95)
        rates[name] = [BatchRate(_COMPILE_ROWS, statistics.median(per_s), low, high, 0)]
    return rates


if __name__ == "__main__":
    sys.exit(main())
