"""Try every learner in environments that nobody here wrote, under the command line's options.

    python tests/environments_report.py                       gymnax's, each in a process of its own
    python tests/environments_report.py Catch-bsuite          this one
    python tests/environments_report.py --generated 200       environments made by hypothesis

Each agent trains three updates, is evaluated, steps in a recorded rollout, and is drawn where the
environment can draw itself. A row says `ok`, `refused` with its sentence, `failed` with an error,
or `died` where the process ended.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

AGENTS = ("random", "ppo", "pqn", "dqn")
# Small, so that compiling is all there is to wait for.
NETWORK = {"agent.hidden_sizes": (8,), "agent.gamma": 0.9}
ON_POLICY = {"rollout_steps": 8, "agent.num_epochs": 1, "agent.num_minibatches": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "random": {},
    "ppo": NETWORK | ON_POLICY,
    "pqn": NETWORK | ON_POLICY,
    "dqn": NETWORK | {"batch_size": 4, "buffer_size": 64, "agent.learning_starts": 8},
}
NUM_ENVS = 16
LONGEST_S = 600

Row = dict[str, Any]


def tried(name: str, agent: str, options: dict[str, Any]) -> str:
    """Train, evaluate, record and draw; return what was refused, or nothing."""
    from myriad import MyriadError, Rollout, create_config, load_agent, train_and_evaluate
    from myriad.rendering.video import record

    steps = 3 * OPTIONS[agent].get("rollout_steps", 1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            config = create_config(
                name,
                agent,
                NUM_ENVS,
                steps,
                eval_rollouts=2,
                eval_max_steps=20,
                **OPTIONS[agent],
                **{f"env.{field}": value for field, value in options.items()},
            )
        except MyriadError as error:
            return str(error)
        run = train_and_evaluate(config, f"{folder}/run", quiet=True).run_folder
        _, env, trained = load_agent(run, trust=True)
        rollout = Rollout(env, trained, NUM_ENVS, scan_chunk_size=8)
        state, _ = rollout.record_chunk(rollout.init(0), final_obs=True)
        rollout.summary(rollout.run(state, 12))
        if hasattr(env, "render"):
            record(env, trained, f"{folder}/it.gif", num_steps=2)
    return ""


def child(cases: list[Any]) -> None:
    """Try every case, and say on standard output what came of it."""
    import warnings

    from myriad import configure
    from myriad.errors import ShortTrainingWarning

    warnings.simplefilter("ignore", ShortTrainingWarning)
    configure()
    for name, options, agent in cases:
        start = time.perf_counter()
        outcome = "failed"
        try:
            reason = tried(name, agent, options)
            outcome = "refused" if reason else "ok"
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a row of the table)
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        row = {"outcome": outcome, "seconds": time.perf_counter() - start, "reason": reason}
        print(json.dumps(row), flush=True)


def rows(cases: Sequence[Any]) -> Iterator[Row]:
    """Try the cases in child processes: a new one after each that dies."""
    left = list(cases)
    while left:
        process = subprocess.Popen(
            [sys.executable, __file__, "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(json.dumps(left), timeout=LONGEST_S * len(left))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if len(found) < len(left):
            last = err.strip().splitlines()[-1:] or [""]
            reason = f"exit code {process.returncode}: {last[0]}"
            found.append({"outcome": "died", "seconds": 0.0, "reason": reason})
        for (name, options, agent), row in zip(left, found, strict=False):
            shown = f"{name} {json.dumps(options)}" if options else name
            yield {"env": shown, "agent": agent} | row
        left = left[len(found) :]


def gymnax_cases(names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the cases of each of gymnax's environments."""
    import gymnax

    for name in names or gymnax.registered_envs:
        yield [[f"gymnax:{name}", {}, agent] for agent in AGENTS]


def generated_cases(number: int) -> Iterator[list[Any]]:
    """Yield batches of cases of generated environments, the same ones every time."""
    from generated_env import environments
    from hypothesis import HealthCheck, Phase, given, seed, settings

    drawn: list[Any] = []

    @seed(19)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(environments())
    def draw(env: Any) -> None:
        drawn.append({"operations": env.operations, "observation": env.observation})

    draw()
    for first in range(0, len(drawn), 10):
        yield [
            ["generated_env:Generated", options, AGENTS[i % len(AGENTS)]]
            for i, options in enumerate(drawn[first : first + 10], first)
        ]


def main() -> int:
    """Run the command line; return 1 if anything failed or died."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("names", nargs="*", help="gymnax's environments (default: all)")
    parser.add_argument("--generated", type=int, default=0, metavar="N")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    if arguments.child:
        child(json.load(sys.stdin))
        return 0
    batches = (
        generated_cases(arguments.generated)
        if arguments.generated
        else gymnax_cases(arguments.names)
    )
    table = []
    for batch in batches:
        for row in rows(batch):
            table.append(row)
            shown = f"{row['outcome']:8} {row['agent']:7} {row['seconds']:6.1f} s  {row['env']}"
            print(f"{shown}  {row['reason']}", flush=True)
    return int(any(row["outcome"] in ("failed", "died") for row in table))


if __name__ == "__main__":
    sys.exit(main())
