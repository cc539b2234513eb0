"""One side of the gate in a process of its own: imports a checkout and runs benchmarks of its suite on request.

The driver starts this file by its path and talks to it in lines of JSON over two private pipes, so
that what a benchmark prints, closes or breaks stays its own affair. Needs the standard library and
asv_runner; jax is looked at only where the suite has imported it.
"""

import argparse
import contextlib
import gc
import hashlib
import importlib.util
import json
import math
import os

# asv's own protocol: what setup_cache returns reaches each benchmark as a pickle
import pickle  # noqa: TID251
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _sibling(name: str) -> Any:
    """Load a file beside this one under a name of our own: the repository under test may have a `ci` itself."""
    spec = importlib.util.spec_from_file_location(
        f"_gate_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


calls, compiled, counters, listing, own_time, sampling = (
    _sibling(name) for name in ("calls", "compiled", "counters", "listing", "own_time", "sampling")
)

# times it is looked at whether it does: a host that took the core away leaves the same trace as
# sleep
_AGAIN = 2
Request = dict[str, Any]
Reply = dict[str, Any]


class Side:
    """The suite of one checkout and the benchmarks of it that are ready to run."""

    def __init__(self, suite: Path, caches: Path, exchange: Path):
        self.suite, self.caches, self.exchange = suite, caches, exchange
        self.scratch = Path(tempfile.mkdtemp(dir=exchange))
        self.ready: dict[str, Any] = {}

    def discover(self, request: Request) -> Reply:
        """List the suite's benchmarks and the modules of it that can't be imported."""
        return listing.suite(self.suite)

    def origins(self, request: Request) -> Reply:
        """Say where every module came from, by now."""
        return {"modules": listing.loaded_from()}

    def inspect(self, request: Request) -> Reply:
        """Run a benchmark for the first time: its value, or its program and whether a second call compiles."""
        first = compiled.Compilations()
        compiled.import_jax_for(self.suite)
        worked, waited = own_time.scheduled()
        with first.counted():
            benchmark = self._prepare(request)
            if benchmark is None:
                return {"skipped": True}
            if benchmark.type != "time":
                return self._value(benchmark)
            sampling.sample(benchmark, 1)
        # The sides are inspected on cores of their own: what a neighbour took away of one of them
        # is no compile time.
        worked, waited = (
            after - before
            for after, before in zip(own_time.scheduled(), (worked, waited), strict=True)
        )
        share = worked / (worked + waited) if worked > 0 else 1.0
        reply: Reply = {"compile_s": first.seconds * share, "compilations": first.count}
        with (again := compiled.Compilations()).counted():
            second_s = _own_s(benchmark)
        reply["seconds"] = _quickest(benchmark, second_s)
        if "jax" in sys.modules:
            reply["second_call_compilations"] = again.count
        if counters.can_count():
            with (instructions := counters.Counter()).counted():
                sampling.sample(benchmark, 1)
            reply["cpu_instructions"] = instructions.count
        reply |= self._program(benchmark, request["row"])
        self.release(request)
        return reply

    def meet(self, request: Request) -> Reply:
        """Set a benchmark up that was inspected before, and time its first calls again."""
        benchmark = self._prepare(request)
        if benchmark is None:
            return {"skipped": True}
        sampling.sample(benchmark, 1)
        reply: Reply = {"seconds": _quickest(benchmark, _own_s(benchmark))}
        self.release(request)
        return reply

    def watch(self, request: Request) -> Reply:
        """Count the functions that one call of a benchmark calls, or the modules that its statement imports."""
        benchmark = self._prepare(request)
        if benchmark is None:
            return {"skipped": True}
        if sampling.is_raw(benchmark):
            # the arguments that asv would pass
            code = benchmark.func(*benchmark._build_params())  # noqa: SLF001
            statement, setup = code if isinstance(code, tuple) else (code, "")
            found = calls.imported(statement, setup, getattr(benchmark, "_timeraw_env", None) or {})
        else:
            sampling.sample(benchmark, 1)
            found = calls.counted(lambda: sampling.sample(benchmark, 1), Path(request["root"]))
        self.release(request)
        return {"calls": found}

    def _value(self, benchmark: Any) -> Reply:
        value = benchmark.do_run()
        if benchmark.type == "peakmemory":
            value = _peak_bytes() or value
        self._tear_down(benchmark)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return {"skipped": True}
        if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
            raise TypeError(f"the benchmark returned {type(value).__name__}, which has no order")
        if math.isinf(value):
            raise ValueError(f"the benchmark returned {value}, of which nothing is more or less")
        return {"value": float(value)}

    def _program(self, benchmark: Any, row: str) -> Reply:
        """Write the texts of the program that the benchmark's class offers, and what its executable knows of itself."""
        owner = listing.owner_of(benchmark)
        offer = getattr(owner, "program", None)
        if offer is None:
            return {}
        # the arguments that asv would pass
        offered = offer(*benchmark._build_params())  # noqa: SLF001
        if offered is None:
            return {}
        lowered, executable = (
            offered if isinstance(offered, tuple) else compiled.told_apart(offered)
        )
        if executable is None and hasattr(lowered, "compile"):
            executable = lowered.compile()
        base = self.exchange / hashlib.sha256(f"{os.getpid()} {row}".encode()).hexdigest()[:20]
        reply: Reply = {
            "timed_is_program": bool(getattr(owner, "timed_is_program", False)),
            "context": compiled.context(),
        }
        for kind, program in (("lowered", lowered), ("optimised", executable)):
            text = (
                program
                if isinstance(program, str)
                else program.as_text()
                if program is not None
                else None
            )
            if text is not None:
                path = base.with_suffix(f".{kind}")
                path.write_text(text)
                reply[kind] = str(path)
        return reply | {"executable": compiled.numbers_of(executable)}

    def calibrate(self, request: Request) -> Reply:
        """Prepare a benchmark, warm it up, and say how many calls last for `target_s`."""
        benchmark = self._prepare(request)
        if benchmark is None:
            return {"skipped": True}
        fixed = benchmark.number > 0  # the author's own number of calls
        target_s, calls = request["target_s"], max(1, int(benchmark.number))
        sampling.sample(benchmark, calls)
        while True:
            start, clock = time.perf_counter(), _own_clock(benchmark)
            seconds = sampling.sample(benchmark, calls, clock)
            # Where the set-up that asv repeats before each call is the slow part, ten times the
            # target is enough.
            wall_s = time.perf_counter() - start
            if fixed or seconds * calls >= target_s / 2 or wall_s >= 10 * target_s:
                is_work = clock is not None and _is_work(benchmark, calls, clock)
                return {
                    "calls": calls,
                    "fixed": fixed,
                    "seconds": seconds,
                    "wall_s": wall_s,
                    "is_work": is_work,
                }
            calls = max(calls + 1, min(10 * calls, math.ceil(target_s / max(seconds, 1e-9))))

    def prepare(self, request: Request) -> Reply:
        """Make a benchmark ready, warm it up, and take a first sample."""
        benchmark = self._prepare(request)
        if benchmark is None:
            return {"skipped": True}
        sampling.sample(benchmark, max(1, int(benchmark.number)))
        return self.sample(request)

    def sample(self, request: Request) -> Reply:
        """Time `calls` calls and return the seconds of one: in `own_time`, without those of waiting for the core."""
        clock = own_time.OwnTime() if request["own_time"] else None
        return {"seconds": sampling.sample(self.ready[request["row"]], request["calls"], clock)}

    def release(self, request: Request) -> Reply:
        """Tear a benchmark down and forget it."""
        benchmark = self.ready.pop(request["row"], None)
        if benchmark is not None:
            self._tear_down(benchmark)
        gc.collect()
        return {}

    def _prepare(self, request: Request) -> Any:
        """Set a fresh instance of the benchmark up; None where it asks to be skipped."""
        from asv_runner import discovery

        name = (
            request["name"] if request["index"] is None else f"{request['name']}-{request['index']}"
        )
        if not self.ready:
            # modules stay: without them a collection between two benchmarks takes no time
            gc.freeze()
        benchmark: Any = discovery.get_benchmark_from_name(str(self.suite), name)
        benchmark.set_cache(self._cached(benchmark))
        if benchmark.do_setup():
            return None
        self.ready[request["row"]] = benchmark
        return benchmark

    def _cached(self, benchmark: Any) -> Any:
        """Return what the suite's setup_cache made, in a folder that is a copy of the one it ran in, as under asv."""
        if benchmark.setup_cache_key is None:
            return None
        folder = self.caches / hashlib.sha256(benchmark.setup_cache_key.encode()).hexdigest()[:20]
        file = folder / "cache.pickle"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
            made = benchmark.do_setup_cache()
            file.write_bytes(pickle.dumps(made))
        shutil.copytree(folder, self.scratch, dirs_exist_ok=True)
        os.chdir(self.scratch)
        # written above, by this run's own benchmark
        return pickle.loads(file.read_bytes())  # noqa: S301

    def _tear_down(self, benchmark: Any) -> None:
        benchmark.do_teardown()

    def enter_scratch(self) -> None:
        """Stand in a folder that a benchmark may fill, break or delete."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(self.scratch)


def _pin(core: int) -> None:
    """Move this worker to a core, with every thread and process that it has started; what they start follows them."""
    if os.sched_getaffinity(0) == {core}:
        return
    session = os.getsid(0)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is nobody's of ours
            if os.getsid(int(process.name)) == session:
                for thread in (process / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), {core})
    os.sched_setaffinity(0, {core})


def _own_clock(benchmark: Any) -> Any:
    """Return a clock in the place of the benchmark's own; None where that is not the wall's."""
    return own_time.OwnTime() if sampling.has_the_walls_clock(benchmark) else None


def _is_work(benchmark: Any, calls: int, clock: Any) -> bool:
    """Tell whether calls do nothing but work, by this clock of some, or of a few more where they are short."""
    for _ in range(_AGAIN):
        if clock.is_work() or clock.wall_s > 1:
            break
        clock = own_time.OwnTime()
        sampling.sample(benchmark, calls, clock)
    return clock.is_work()


def _own_s(benchmark: Any) -> float:
    """Return the seconds of one call; on the wall's clock those of waiting for the core are left out."""
    return sampling.sample(benchmark, 1, _own_clock(benchmark))


def _quickest(benchmark: Any, seconds: float) -> float:
    """Return the seconds of the quickest of up to five more calls, within a tenth of a second, or these `seconds`."""
    end = time.perf_counter() + 0.1
    for _ in range(5):
        if time.perf_counter() + seconds > end:
            break
        seconds = min(seconds, _own_s(benchmark))
    return seconds


def _peak_bytes() -> int | None:
    """Peak resident bytes of this program alone: getrusage also remembers the process that started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _answer(side: Side, request: Request) -> Reply:
    """Do what one request asks; whatever the benchmark's code raises becomes the reply."""
    methods: dict[str, Callable[[Request], Reply]] = {
        name: getattr(side, name)
        for name in (
            "discover",
            "origins",
            "inspect",
            "meet",
            "watch",
            "calibrate",
            "prepare",
            "sample",
            "release",
        )
    }
    me = os.getpid()
    side.enter_scratch()
    try:
        if request.get("core") is not None:
            _pin(request["core"])
        reply = methods[request["do"]](request)
    # foreign code may raise anything; it costs that benchmark its row
    except BaseException as error:  # noqa: BLE001
        skipped = type(error).__name__ == "SkipNotImplemented"
        reply = {"skipped": True} if skipped else {"error": listing.sentence(error)}
    if os.getpid() != me:
        reply = {
            "stray": request.get("row"),
            "error": "it forked, and its child came back out of the benchmark",
        }
    elif not side.scratch.is_dir():
        reply = {"error": "it deleted its working directory"}
    return reply | {"id": request["id"]}


def main() -> None:
    """Answer requests until the driver hangs up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--replies", type=int, required=True)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--caches", type=Path, required=True)
    parser.add_argument("--exchange", type=Path, required=True)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if (
        options.core is not None
    ):  # before anything is imported: libraries size their thread pools by it
        os.sched_setaffinity(0, {options.core})
    with contextlib.suppress(
        OSError
    ):  # where memory runs out, the kernel shall take the benchmark, not the gate
        Path("/proc/self/oom_score_adj").write_text("800")
    from asv_runner.discovery import update_sys_path

    update_sys_path(str(options.suite))
    for descriptor in (options.requests, options.replies):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes no keyword
    side, me = Side(options.suite, options.caches, options.exchange), os.getpid()
    with os.fdopen(options.requests) as requests:
        for line in requests:
            os.write(options.replies, (json.dumps(_answer(side, json.loads(line))) + "\n").encode())
            if os.getpid() != me:
                os._exit(0)


if __name__ == "__main__":
    main()
