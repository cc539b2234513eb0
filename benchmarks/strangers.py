"""Compare a rollout of environments as other people write them with loops of one's own.

    python benchmarks/strangers.py                    all eleven, 1,000 of each
    python benchmarks/strangers.py --only maze

Each loop has a process of its own. They take turns, and a rate is steps per processor second.
"""

import contextlib
import statistics
import sys

from benchmarks.harness import process
from benchmarks.harness.alternation import in_turns
from benchmarks.harness.results import spread
from benchmarks.harness.tables import between, markdown
from benchmarks.runner import Run, Script, text, whole

_VARIANTS = ("Rollout", "Rollout, vector math off", "own loop", "plain loop")
_ROUNDS = 7
_TIMEOUT_S = 600.0


def _measure(run: Run) -> None:
    from benchmarks.opponents.strangers import ENVS

    table = []
    for name in ENVS:
        if run.options.only not in name:
            continue
        rates = _rates(name, run.options.num_envs)
        columns = dict(zip(("ours", "scalar", "own", "plain"), rates, strict=True))
        row = {"env": name, "num_envs": run.options.num_envs}
        for loop, of_loop in columns.items():
            row |= spread([rate / 1e6 for rate in of_loop], f"{loop}_per_processor_s")
        best = max(list(columns)[1:], key=lambda loop: statistics.median(columns[loop]))
        beside = zip(columns["ours"], columns[best], strict=True)
        row |= spread([ours / other for ours, other in beside], "of_the_best")
        run.save(row)
        medians = [f"{row[f'{loop}_per_processor_s']:.3g}" for loop in columns]
        table.append((row["of_the_best"], [name, *medians, between(row, "of_the_best", ".2f")]))
        print(*table[-1][1], sep="; ", file=sys.stderr, flush=True)
    headers = ["environment", *_VARIANTS, "Rollout / best of the others"]
    print(markdown(headers, [line for _, line in sorted(table)]))


def _rates(name: str, num_envs: int) -> list[list[float]]:
    """Return steps per processor second of each loop, round by round."""
    from benchmarks.opponents.strangers import environ_of

    with contextlib.ExitStack() as stack:
        loops = {}
        for variant in _VARIANTS:
            request = {"name": name, "variant": variant, "num_envs": num_envs}
            started = process.started(
                "benchmarks.opponents.strangers:loop", request, environ_of(variant)
            )
            child = stack.enter_context(started)
            num_steps = child.reply(_TIMEOUT_S)["num_steps"]
            loops[variant] = (child, num_envs * num_steps)

        def rate(variant: str) -> float:
            child, num_steps = loops[variant]
            return num_steps / child.ask({}, _TIMEOUT_S)["processor_s"]

        samplers = {variant: lambda variant=variant: rate(variant) for variant in _VARIANTS}
        return list(in_turns(samplers, _ROUNDS).values())


SCRIPT = Script(
    "strangers",
    __doc__,
    _measure,
    {
        "--only": text("only the environments whose names hold this text", ""),
        "--num-envs": whole("number of parallel environments (default: 1,000)", 1_000),
    },
    writes="environment",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
