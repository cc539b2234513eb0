"""Step CartPole and the pendulum by c_loops.c, and print our share of its speed.

    python -m tests.c_loops
    python -m tests.c_loops pendulum-control --num-envs 1000

It is what a C compiler makes of the same work, by hand and for these two environments alone, under
random actions, with our random numbers and on a thread of each core. CC may name your compiler.
Each process compiles it afresh, since the code is for the processor that it runs on, and a compiler
that is updated counts at once.
"""

import argparse
import ctypes
import os
import platform
import shlex
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness.alternation import in_turns
from benchmarks.harness.results import spread
from benchmarks.harness.tables import between
from benchmarks.harness.workload import Case, Workload
from benchmarks.libraries.ours import MyriadStepper
from benchmarks.libraries.server import SEED, Session, Stepper, Totals
from myriad import configure
from myriad.host import usable_cores

_SOURCE = Path(__file__).with_suffix(".c")
# Without these rules of floats a compiler vectorises neither `rintf` nor a choice of two. Sums keep
# their order, so the sine is as exact as Myriad's.
_FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffinite-math-only", "-fno-signed-zeros"),
    *(("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()),
)
# The number of each environment in c_loops.c.
ENVS = {"cartpole-control": 0, "pendulum-control": 1}
# Numbers of environments, and the steps of a chunk.
SIZES = {1: 65_600, 100: 16_400, 1_000: 4_000, 10_000: 1_000, 100_000: 200}


class CStepper(Stepper):
    """The loops in C, over the threads of all cores."""

    def __init__(self, workload: Workload):
        with tempfile.TemporaryDirectory() as folder:
            code = Path(folder) / "c_loops.so"
            compiler = shlex.split(os.environ.get("CC", "cc"))
            subprocess.run([*compiler, *_FLAGS, str(_SOURCE), "-o", str(code)], check=True)
            self._code = ctypes.CDLL(str(code))
        self._code.begin.restype = ctypes.c_void_p
        self._code.num_episodes.restype = ctypes.c_int64
        self._code.return_sum.restype = ctypes.c_double
        sizes = (workload.num_envs, workload.scan_chunk_size, usable_cores())
        env = ctypes.c_int32(ENVS[workload.env])
        run = self._code.begin(env, *map(ctypes.c_int64, sizes), ctypes.c_uint32(SEED))
        self._run = ctypes.c_void_p(run)

    def run(self, num_steps: int) -> None:
        self._code.run_steps(self._run, ctypes.c_int64(num_steps))

    def totals(self) -> Totals:
        return Totals(self._code.num_episodes(self._run), self._code.return_sum(self._run))


def share(env: str, num_envs: int) -> str:
    """Return the ratio of Myriad's steps/s to those of the loops, called in turns."""
    chunk = SIZES[num_envs]
    workload = Workload("c_loops", f"{num_envs}", env, "random", num_envs, chunk, ())
    steppers = (MyriadStepper(Case("myriad", workload)), CStepper(workload))
    ours, theirs = (Session(each, workload, 0.05) for each in steppers)
    samplers = {each: lambda each=each: each.call()["seconds"] for each in (ours, theirs)}
    seconds = in_turns(samplers, 11)
    a_step = [[each / one.num_steps for each in seconds[one]] for one in (theirs, ours)]
    return between(spread([c / own for c, own in zip(*a_step, strict=True)], "share"), "share")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.c_loops", description=__doc__)
    parser.add_argument("env", nargs="?", default="cartpole-control", choices=ENVS)
    parser.add_argument("--num-envs", type=int, choices=SIZES, help="only this size")
    options = parser.parse_args()
    configure()
    for num_envs in [options.num_envs] if options.num_envs else SIZES:
        print(f"{options.env}, {num_envs:,}: {share(options.env, num_envs)} of C", flush=True)


if __name__ == "__main__":
    main()
