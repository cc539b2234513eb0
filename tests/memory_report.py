"""Train under memory limits, always with the most that is said to fit.

`python tests/memory_report.py` takes 20 limits from 600 MB to 8 GB, `--limits 2` fewer.

Each row is a training under a limit. It first asks for far too much, and then for the number that
the refusal names, until it runs. So the last process takes as much as Myriad lets it take.

Myriad reads the limit from files of a control group that this script makes up, and the script ends
a process that holds more, as the system would. So it needs no rights.

`predicted` is what Myriad expected the process to hold at most, before it allocated anything
large. `peak` is what the system says that it held. A row fails if a process was killed, if it ended
without a sentence, or if more than 1.25 of the peak was predicted.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

SMALLEST = 600 * 10**6
LARGEST = 8 * 10**9
# What is made large in turn: of which agent, what, and how a refusal names the number that fits.
NUMBER = r"([\d,]+)"
LARGE = [
    ("random", "num_envs", rf"{NUMBER} environments fit"),
    ("dqn", "buffer_size", rf"a buffer_size of about {NUMBER}"),
    ("ppo", "num_envs", rf"{NUMBER} environments fit"),
    ("random", "eval_rollouts", rf"eval_rollouts of about {NUMBER}"),
]
# Far too much. PPO takes fewer than 2**31 environments times its steps.
TOO_MUCH = {"random": 10**9, "dqn": 10**9, "ppo": 2**31 // 64}
# A window of training and an evaluation touch all that there is to touch.
SIZES: dict[str, dict[str, Any]] = {
    "random": {"steps_per_env": 4},
    "dqn": {"num_envs": 4096, "steps_per_env": 4096, "agent.learning_starts": 1000},
    "ppo": {"rollout_steps": 32, "steps_per_env": 32, "agent.num_epochs": 1},
}
EVALUATION = {"eval_max_steps": 20, "env.max_steps": 20}
MOST_TRIES = 5


def child(agent: str, setting: str, asked: int, limit: int) -> None:
    """Train under a limit, and say on standard output what was predicted and how it ended."""
    from myriad import MyriadError, configure, create_config, train_and_evaluate, xla

    warnings.simplefilter("ignore")
    configure(cpu_devices=1)
    limit_by_files(limit)
    predicted = [0]
    most_bytes = xla.most_bytes

    def recorded(programs: int) -> int:
        predicted.append(max(held_bytes() + most_bytes(programs), peak_bytes()))
        return most_bytes(programs)

    xla.most_bytes = recorded
    outcome, said = "ran", ""
    try:
        config = create_config(
            "cartpole-control", agent, **SIZES[agent], **EVALUATION, **{setting: asked}
        )
        with tempfile.TemporaryDirectory() as folder:
            train_and_evaluate(config, f"{folder}/run", quiet=True)
    except MyriadError as error:
        outcome, said = "refused", str(error)
    print(json.dumps({"predicted": predicted[-1], "outcome": outcome, "said": said}), flush=True)


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
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def process(agent: str, setting: str, asked: int, limit: int) -> dict[str, Any]:
    """Train in a process under its limit; return what it said, and its peak."""
    case = [agent, setting, asked, limit]
    with tempfile.TemporaryFile("w+") as out:
        started = subprocess.Popen([sys.executable, __file__, json.dumps(case)], stdout=out)
        watch = threading.Thread(target=end_beyond, args=(started.pid, limit))
        watch.start()
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        watch.join()
        out.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
    found = {"predicted": 0, "outcome": f"exit code {started.returncode}", "said": ""}
    if lines and not started.returncode:
        found = json.loads(lines[-1])
    return found | {"peak": usage.ru_maxrss * 1024}


def end_beyond(pid: int, limit: int) -> None:
    """End a process of ours as soon as it holds more than `limit` bytes."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        while True:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            if pages * resource.getpagesize() > limit:
                os.kill(pid, 9)
                return
            time.sleep(0.005)


def main() -> int:
    """Print the table; return 1 if a row fails."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--limits", type=int, default=20, help="how many, from 600 MB to 8 GB")
    parser.add_argument("--most", type=float, default=3.0, help="GB that may really be taken")
    parser.add_argument("case", nargs="?", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        child(*arguments.case)
        return 0
    failed = 0
    print("limit, MB  what                       asked  predicted, MB  peak, MB  ratio  outcome")
    for number in range(arguments.limits):
        agent, setting, named = LARGE[number % len(LARGE)]
        limit = int(SMALLEST * (LARGEST / SMALLEST) ** (number / max(1, arguments.limits - 1)))
        asked = TOO_MUCH[agent]
        found: dict[str, Any] = {}
        for _ in range(MOST_TRIES):
            found = process(agent, setting, asked, limit)
            fits = re.search(named, found["said"])
            if found["outcome"] != "refused" or fits is None:
                break
            # Under a high limit, only a share of what fits is asked for.
            share = min(1, arguments.most * 1e9 / limit)
            asked = int(int(fits[1].replace(",", "")) * share)
        ratio = found["predicted"] / found["peak"]
        # Programs that don't even compile within the limit are refused without a number.
        is_good = "compiling" in found["said"] or (found["outcome"] == "ran" and ratio <= 1.25)
        failed += not is_good
        cells = (limit / 1e6, f"{agent} {setting}", asked, found["predicted"] / 1e6)
        line = "{:9,.0f}  {:24} {:13,}  {:13,.0f}".format(*cells)
        line += f"  {found['peak'] / 1e6:8,.0f}  {ratio:5.2f}  {found['outcome']} {found['said']}"
        print(line if is_good else f"{line}  FAILED", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
