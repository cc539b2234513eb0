"""Train, evaluate and autotune under memory limits, always with the most that is said to fit.

    python tests/memory_report.py                      20 limits from 600 MB to 8 GB
    python tests/memory_report.py --limits 2 --by data
    python tests/memory_report.py train --most 8

Each row is a command under a limit. It first asks for far too much, and then for the number that
the refusal names, until it runs. So the last process takes as much as Myriad lets it take.

A limit is one of two kinds. `container` gives Myriad the files of a control group with this limit,
and ends a process that holds more, as the system would. So it needs no rights, and no real control
group. `data` is `ulimit -d`, which the system enforces, but it also counts pages that are never
used. `ulimit -v` would count XLA's reserved addresses, which are no memory.

`predicted` is what Myriad expected the process to hold at most, before it allocated anything
large. `peak` is what the system says that it held. A row fails if a process was killed, if it ended
without a sentence, or if more than 1.25 of the peak was predicted.
"""

import argparse
import contextlib
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = ("train", "evaluate", "autotune")
SMALLEST = 600 * 10**6
LARGEST = 8 * 10**9
FIELDS = ("command", "setting", "limit_mb", "asked", "predicted_mb", "peak_mb", "ratio", "outcome")
# What is made large in turn: of which agent, what, and from where on it is far too much.
LARGE = {
    "train": [
        ("random", "num_envs"),
        ("dqn", "buffer_size"),
        ("ppo", "num_envs"),
        ("random", "eval_rollouts"),
    ],
    "evaluate": [("ppo", "num_episodes")],
    "autotune": [("random", "num_envs"), ("dqn", "buffer_size"), ("ppo", "num_envs")],
}
TOO_MUCH = 10**9
MOST_OF_PPO = 2**31 // 64  # environments: times its steps, fewer than 2**31 are taken
# A window of training and an evaluation touch all that there is to touch.
SIZES: dict[str, dict[str, Any]] = {
    "random": {"steps_per_env": 4},
    "dqn": {"num_envs": 4096, "steps_per_env": 4096, "agent.learning_starts": 1000},
    "ppo": {"rollout_steps": 32, "steps_per_env": 32, "agent.num_epochs": 1},
}
EVALUATION = {"eval_max_steps": 20, "env.max_steps": 20}
NUMBER = r"([\d,]+)"
NAMED = {
    "num_envs": rf"{NUMBER} environments fit",
    "buffer_size": rf"a buffer_size of about {NUMBER}",
    "eval_rollouts": rf"eval_rollouts of about {NUMBER}",
    "num_episodes": rf"(?:at most about|fewer than) {NUMBER} fit",
}
MOST_TRIES = 5
WATCH_S = 0.005

Row = dict[str, Any]


def child(case: Row) -> None:
    """Do one thing, and say on standard output what was predicted and how it ended."""
    import warnings

    from myriad import MyriadError, configure, xla
    from myriad.errors import ShortTrainingWarning

    warnings.simplefilter("ignore", ShortTrainingWarning)
    configure(cpu_devices=1)
    if case["by"] == "container":
        limit_by_files(case["limit"])
    predictions = [0]
    most_bytes = xla.most_bytes

    def recorded(programs: int) -> int:
        predictions.append(held_bytes() + most_bytes(programs))
        predictions.append(max(predictions[-1], peak_bytes()))
        return most_bytes(programs)

    xla.most_bytes = recorded
    said = ""
    try:
        do(case)
        outcome = "ran"
    except MyriadError as error:
        said = str(error)
        outcome = "refused"
    print(json.dumps({"predicted": predictions[-1], "outcome": outcome, "said": said}), flush=True)


def do(case: Row) -> None:
    """Train, evaluate or autotune."""
    from myriad import create_config, train_and_evaluate
    from myriad.api import evaluate_run
    from myriad.autotune import autotune

    if case["command"] == "evaluate":
        evaluate_run(case["run"], case["asked"])
        return
    fields = SIZES[case["agent"]] | EVALUATION | {case["setting"]: case["asked"]}
    config = create_config("cartpole-control", case["agent"], **fields)
    if case["command"] == "autotune":
        autotune(config, verbose=False, seconds=0)
        return
    with tempfile.TemporaryDirectory() as folder:
        train_and_evaluate(config, f"{folder}/run", quiet=True)


def limit_by_files(limit: int) -> None:
    """Have Myriad read the files of a control group with this limit in which it is alone."""
    from myriad import hardware, host

    root = Path(tempfile.mkdtemp())
    group = root / "sys/fs/cgroup/limited"
    (root / "proc/self").mkdir(parents=True)
    group.mkdir(parents=True)
    (root / "proc/meminfo").write_text(Path("/proc/meminfo").read_text())
    (root / "proc/self/cgroup").write_text("0::/limited\n")
    (group / "memory.max").write_text(f"{limit}\n")

    def limited() -> tuple[int | None, int | None]:
        (group / "memory.current").write_text(f"{held_bytes()}\n")
        return host.host_memory(root)

    hardware.host_memory = limited


def held_bytes() -> int:
    """Return what this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Return the most that this process ever held."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def process(case: Row) -> Row:
    """Run a case in a process under its limit; return what it said, and its peak."""

    def limit() -> None:
        if case["by"] == "data":
            resource.setrlimit(resource.RLIMIT_DATA, (case["limit"], case["limit"]))

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = subprocess.Popen(
            [sys.executable, __file__, "--child", json.dumps(case)],
            stdout=out,
            stderr=err,
            preexec_fn=limit,  # noqa: PLW1509  (no thread runs yet)
        )
        watch = threading.Thread(target=end_beyond, args=(started.pid, case["limit"]))
        watch.start()
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        watch.join()
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        last = (err.read().strip().splitlines() or [""])[-1]
    peak = usage.ru_maxrss * 1024
    if not lines or started.returncode:
        return {
            "predicted": 0,
            "outcome": "died",
            "said": f"exit code {started.returncode}: {last}",
            "peak": peak,
        }
    found = json.loads(lines[-1]) | {"peak": peak}
    if peak > case["limit"]:
        found["outcome"] = "beyond the limit"
    return found


def end_beyond(pid: int, limit: int) -> None:
    """End a process of ours as soon as it holds more than `limit` bytes."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        while True:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            if pages * resource.getpagesize() > limit:
                os.kill(pid, 9)
                return
            time.sleep(WATCH_S)


def row(case: Row, most: int) -> Row:
    """Ask for ever less until it runs; return the row of the table.

    Args:
        case: what to ask for.
        most: bytes that may really be taken. Under a higher limit, only a share of what fits is
            asked for.
    """
    is_ppo = (case["agent"], case["setting"]) == ("ppo", "num_envs")
    asked = MOST_OF_PPO if is_ppo else TOO_MUCH
    refusals = 0
    found: Row = {}
    for _ in range(MOST_TRIES):
        found = process(case | {"asked": asked})
        if found["outcome"] != "refused":
            break
        refusals += 1
        named = re.search(NAMED[case["setting"]], found["said"])
        if named is None:
            found["outcome"] = f"refused: {found['said']}"
            break
        asked = int(named[1].replace(",", ""))
        if case["limit"] > most:
            asked = int(asked * most / case["limit"]) // 4096 * 4096
    if found["outcome"] == "ran":
        found["outcome"] = f"ran after {refusals} refusals"
    elif found["outcome"] == "died":
        found["outcome"] = f"died: {found['said']}"
    ratio = found["predicted"] / found["peak"] if found["outcome"].startswith("ran") else 0.0
    return {
        "command": case["command"],
        "setting": f"{case['agent']} {case['setting']}",
        "limit_mb": round(case["limit"] / 1e6),
        "asked": asked,
        "predicted_mb": round(found["predicted"] / 1e6),
        "peak_mb": round(found["peak"] / 1e6),
        "ratio": round(ratio, 2),
        "outcome": found["outcome"],
    }


def rows(commands: list[str], limits: int, by: str, most: int) -> Iterator[Row]:
    """Yield the rows of the table."""
    factor = (LARGEST / SMALLEST) ** (1 / max(1, limits - 1))
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        if "evaluate" in commands:
            small = {"num_envs": 64, "steps_per_env": 32, "rollout_steps": 32} | EVALUATION
            train_small(run, small)
        for command in commands:
            for i in range(limits):
                agent, setting = LARGE[command][i % len(LARGE[command])]
                case = {
                    "command": command,
                    "agent": agent,
                    "setting": setting,
                    "limit": int(SMALLEST * factor**i),
                    "by": by,
                    "run": run,
                }
                yield row(case, most)


def train_small(run: str, fields: Row) -> None:
    """Train what `evaluate` evaluates, in a process of its own."""
    code = "import json, sys; from myriad import *; run, fields = json.loads(sys.argv[1]);"
    code += "train_and_evaluate(create_config('cartpole-control', 'ppo', **fields), run)"
    command = [sys.executable, "-W", "ignore", "-c", code, json.dumps([run, fields])]
    subprocess.run(command, check=True)


def is_good(each: Row) -> bool:
    """Return whether a row is as promised."""
    refused = each["outcome"].startswith("refused: compiling")
    return refused or (each["outcome"].startswith("ran") and each["ratio"] <= 1.25)


def main() -> int:
    """Run the command line; return 1 if a row fails."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--limits", type=int, default=20, help="how many, from 600 MB to 8 GB")
    parser.add_argument("--by", choices=("container", "data"), default="container")
    parser.add_argument("--most", type=float, default=3.0, help="GB that may really be taken")
    parser.add_argument("--output", type=Path, help="CSV file for the table")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return 0
    commands = arguments.commands or list(COMMANDS)
    table = []
    print(("{:9} {:22} {:>8} {:>13} {:>12} {:>8} {:>6}  {}").format(*FIELDS))
    for each in rows(commands, arguments.limits, arguments.by, round(arguments.most * 1e9)):
        table.append(each)
        shown = "{:9} {:22} {:8,} {:13,} {:12,} {:8,} {:6.2f}  {}".format(*each.values())
        print(shown if is_good(each) else f"{shown}  FAILED", flush=True)
    if arguments.output:
        with arguments.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(table)
    return int(not all(is_good(each) for each in table))


if __name__ == "__main__":
    sys.exit(main())
