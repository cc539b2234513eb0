"""Measure the gain of each XLA option that `configure` sets, by leaving out one at a time.

    python benchmarks/xla_options.py                 every option, five alternated launches
    python benchmarks/xla_options.py --launches 3

Each launch is a new process, since XLA reads its options once. Launches with and without an option
alternate, so that a slow phase of the machine affects both.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.command_line import Parser, count, guarded
from benchmarks.harness.files import write_rows
from benchmarks.harness.process import child_process
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.workloads import SuiteError

_SCRIPT = "benchmarks/xla_options.py"
_VARIABLE = "MYRIAD_WITHOUT_XLA_OPTIONS"
_TIMEOUT_S = 600.0
_SECONDS = 0.6  # seconds of calls to each program, and the fewest calls
_CALLS = 5
# Environments and steps of a call, with random actions.
ROLLOUTS = {
    "cartpole-control": ((1, 1_000), (1_000, 1_000), (100_000, 256), (1_000_000, 32)),
    "pendulum-control": ((1_000, 500),),
    "gene-circuit-control": ((1_000, 64),),
    "snake": ((1_000, 64),),
}
PPO_ENVS = (4, 1_024)
_PPO_STEPS = 200_000


@dataclass(frozen=True)
class Ratio:
    """The rate with all options over the rate without one, in one pair of launches."""

    option: str
    program: str
    launch: int
    ratio: float


def rates() -> dict[str, float]:
    """Return the steps/s of every program in this process, by name."""
    import numpy as np

    from myriad import Rollout, configure, create_config, make_agent, make_env
    from myriad.training.programs import CompiledTraining

    configure()
    found = {}
    for env_id, sizes in ROLLOUTS.items():
        env = make_env(env_id)
        for num_envs, num_steps in sizes:
            rollout = Rollout(env, make_agent("random", env), num_envs, num_steps)
            name = f"{env_id}, {num_envs:,} environments"
            found[name] = num_envs * num_steps / _seconds(rollout.run_chunk, rollout.init(0))
    for num_envs in PPO_ENVS:
        config = create_config("cartpole-control", "ppo", num_envs, total_steps=_PPO_STEPS)
        training = CompiledTraining(config.resolve())
        training.compile()

        def update(state: Any, training: CompiledTraining = training) -> Any:
            return training.run(state, np.int32(training.num_updates), np.bool_(False))[0]  # noqa: FBT003

        seconds = _seconds(update, training.first_state())
        steps = training.num_updates * training.steps_per_update
        found[f"training by PPO, {num_envs:,} environments"] = steps / seconds
    return found


def _seconds(call: Callable[[Any], Any], state: Any) -> float:
    """Return the median seconds of calls that pass on their state. The first call compiles."""
    import jax

    state = jax.block_until_ready(call(state))
    seconds: list[float] = []
    while len(seconds) < _CALLS or sum(seconds) < _SECONDS:
        start = time.perf_counter()
        state = jax.block_until_ready(call(state))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def launched(without: str) -> dict[str, float]:
    """Return the rates in a new process without an option. An empty name leaves out none."""
    left_out: dict[str, Any] = {_VARIABLE: without}
    try:
        return child_process.run(
            "benchmarks.xla_options:rates", {}, timeout_s=_TIMEOUT_S, **left_out
        )
    except ChildError as error:
        raise SuiteError(f"A launch without {without or 'nothing'} failed: {error}.") from error


def ratios(options: Sequence[str], num_launches: int) -> list[Ratio]:
    """Launch every variant `launches` times, in turn."""
    found = []
    for launch in range(num_launches):
        # Every other round is reversed, so that no variant always follows the same one.
        order = ["", *options] if launch % 2 == 0 else ["", *reversed(options)]
        rate = {option: launched(option) for option in order}
        found += [
            Ratio(option, program, launch, rate[""][program] / rate[option][program])
            for option in options
            for program in rate[option]
        ]
    return found


def table(found: Sequence[Ratio]) -> str:
    """Return a Markdown table of the speedup of each program by each option."""
    options = list(dict.fromkeys(each.option for each in found))
    lines = [
        f"| program | {' | '.join(f'`{option}`' for option in options)} |",
        f"|---|{'---:|' * len(options)}",
    ]
    for program in dict.fromkeys(each.program for each in found):
        cells = []
        for option in options:
            mine = [x.ratio for x in found if (x.option, x.program) == (option, program)]
            cells.append(f"{statistics.median(mine):.2f} ({min(mine):.2f} to {max(mine):.2f})")
        lines.append(f"| {program} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    from myriad.hardware import XLA_CPU_OPTIONS

    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--launches", type=count, default=5, metavar="N", help="launches of each variant"
    )
    parser.add_output("ratio")
    options = parser.parse_args(argv)
    found = ratios(list(XLA_CPU_OPTIONS), options.launches)
    print(table(found))
    if options.output is not None:
        write_rows(options.output, Ratio, found)
    return True


if __name__ == "__main__":
    sys.exit(main())
