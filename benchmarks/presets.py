"""Measure the gain of presets, setting by setting, and of compiled programs over a host loop.

    python benchmarks/presets.py                        the quick trainings of suite.toml
    python benchmarks/presets.py --full                 all of them, and the guide's exact sizes
    python benchmarks/presets.py --part ladder --env cartpole-control
    python benchmarks/presets.py --part target --seeds 5

An asv suite and a command line in four parts. `knobs` times updates of all arms in one process, in
rounds of random order. Its arms are the presets, the baseline with each single setting of a preset,
and the preset without each of them. `runs` alternates whole trainings of the baseline, each in a
new process, with work besides the updates switched on and off. `ladder` times equal updates in ever
fewer calls. `target` trains each preset in a new process until it reaches the target return.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, command_of, count, guarded, report
from benchmarks.harness.process.child_process import run
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import (
    LEAST_SAMPLES,
    ResultsFile,
    Row,
    machine_columns,
    markdown,
    new_row,
    spread,
)
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.trainings import chosen, train_to_target
from benchmarks.harness.workloads import Training, load, tier_from_environment

_SCRIPT = "benchmarks/presets.py"
PARTS = ("knobs", "runs", "ladder", "target")
BASELINE = "baseline"
_FULL_SET = "ultra_fast"
_LEAST_ROUNDS = 7
_TIMEOUT_S = 1_200.0
_SAMPLE_S = 0.25  # the shortest sample
_MOST_UPDATES = 1 << 20
# Numbers of environments in the ladder.
_LADDER_ENVS = (64, 512)
# Updates in one call of a rung.
_LADDER_UPDATES = 4
# The exact sizes of the guide that docs/presets.md discusses: 512 environments in batches of
# 262,144 rows, minibatches of 32,768, one pass.
_LONG_ROLLOUTS = {
    "num_envs": 512,
    "rollout_steps": 512,
    "agent.num_minibatches": 8,
    "agent.num_epochs": 1,
}
AS_DOCUMENTED: Mapping[str, Mapping[str, Any]] = {
    "ppo": _LONG_ROLLOUTS,
    "pqn": _LONG_ROLLOUTS,
    "dqn": {"num_envs": 512, "batch_size": 32_768, "agent.gradient_steps": 1},
}
# Work that the guide switches off. The table shows the cost of each when it is on.
SWITCHED_OFF: Mapping[str, Mapping[str, Any]] = {
    "gradient_accumulation 4": {"agent.gradient_accumulation": 4},
    "gradient_statistics": {"agent.gradient_statistics": True},
    "priority_alpha 0.6": {"agent.priority_alpha": 0.6},
    "n_step 1": {"agent.n_step": 1},
    "replay_memory host": {"agent.replay_memory": "host"},
}


@dataclass(frozen=True)
class Arm:
    """A named configuration.

    Attributes:
        name: its name in the tables.
        preset: the preset on which it is based.
        fields: the fields that differ from the preset.
        donates: whether the next state reuses the state's buffers.
        is_ahead: whether the next chunk is dispatched before the last report is read.
    """

    name: str
    preset: str = BASELINE
    fields: Mapping[str, Any] = field(default_factory=dict)
    donates: bool = True
    is_ahead: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the preset, by the names on the results' pages."""
        found = {name.removeprefix("agent."): value for name, value in self.fields.items()}
        if not self.donates:
            found["donation"] = False
        if not self.is_ahead:
            found["chunk ahead"] = False
        return found


@dataclass(frozen=True)
class RunArm:
    """A whole training of the baseline, with other work besides its updates.

    Attributes:
        fields: the fields that differ from the baseline.
        cpu_devices: see `myriad.configure`.
        profile_chunks: see `myriad.train_and_evaluate`.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    cpu_devices: int | None = None
    profile_chunks: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the baseline."""
        others = {"cpu_devices": self.cpu_devices, "profile_chunks": self.profile_chunks}
        return dict(self.fields) | {name: value for name, value in others.items() if value}


class Presets:
    """Seconds of a few updates with the preset that changes the most settings."""

    params: ClassVar = list(load().select_trainings("presets", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300
    prepared = ""

    def setup(self, workload: str) -> None:
        """Compile and warm up, once: asv calls this before every sample."""
        if self.prepared == workload:
            return
        declared = load().trainings["presets"][workload]
        skip_unless_runnable(declared)
        package.find("myriad.presets:load_preset")
        self.timed = Updates(declared, Arm(_FULL_SET, _FULL_SET))
        self.prepared = workload

    def time_updates(self, workload: str) -> None:
        """Train over a window; the report that ends it has been fetched, so the device is done."""
        self.timed.run()

    def program(self, workload: str) -> Any:
        """Return the compiled updates, for the gate."""
        return self.timed.training.run


class Updates:
    """Updates of one arm, from a state in which every update learns."""

    def __init__(self, declared: Training, arm: Arm):
        import numpy as np

        CompiledTraining = package.find("myriad.training.programs:CompiledTraining")
        start = time.perf_counter()
        self.training = CompiledTraining(config_of(declared, arm).resolve())
        self.training.compile()
        if not arm.donates:
            _, self.training.run = self.training.loop.jitted(donate=False)
        resolved = self.training.resolved
        self._is_ahead = arm.is_ahead
        before = resolved.learner.first_learning_update(resolved.num_envs)
        self.state, _ = self.training.run(
            self.training.first_state(),
            np.int32(before),
            np.bool_(True),  # noqa: FBT003
        )
        self.num_updates = 1
        self.run()
        self.compile_s = time.perf_counter() - start
        while self.num_updates < _MOST_UPDATES and (seconds := self._seconds()) < _SAMPLE_S:
            self.num_updates *= max(2, round(_SAMPLE_S / seconds))

    @property
    def steps(self) -> int:
        """Steps of all environments in a call of `run`."""
        return self.num_updates * self.training.steps_per_update

    def run(self) -> None:
        """Train, and fetch the reports."""
        if self._is_ahead:
            self.state, _ = self.training.run_window(
                self.state, 0, self.num_updates, lambda report, done: None
            )
            return
        import jax
        import numpy as np

        for _ in range(max(1, self.num_updates // self.training.chunk)):
            self.state, report = self.training.run(
                self.state,
                np.int32(min(self.training.chunk, self.num_updates)),
                np.bool_(False),  # noqa: FBT003
            )
            jax.device_get(report)

    def _seconds(self) -> float:
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def rate(self) -> float:
        """Return the steps/s of a call."""
        return self.steps / self._seconds()


def config_of(declared: Training, arm: Arm, seed: int = 0) -> Any:
    """Return the configuration of an arm."""
    from myriad import create_config

    fields: dict[str, Any] = {"preset": arm.preset, "seed": seed, **arm.fields}
    if declared.num_steps is not None:
        fields["total_steps"] = declared.num_steps
    return create_config(declared.env, declared.agent, **fields)


def arms(declared: Training, *, full: bool) -> Iterator[Arm]:
    """Yield the arms of an environment: first the presets, then one setting at a time."""
    from myriad.presets import load_preset

    agent = declared.agent
    env = declared.env
    yield Arm(BASELINE)
    yield Arm("optimized", "optimized")
    yield Arm(_FULL_SET, _FULL_SET)
    if full:
        yield Arm("as_documented", BASELINE, AS_DOCUMENTED[agent])
    fast = load_preset(_FULL_SET, agent, env).fields
    base = config_of(declared, Arm(BASELINE)).resolve().config
    for name, value in fast.items():
        yield Arm(f"{BASELINE} + {name}", BASELINE, {name: value})
        yield Arm(f"{_FULL_SET} - {name}", _FULL_SET, {name: base.value_of(name)})
    yield Arm(f"{BASELINE} without donation", donates=False)
    yield Arm(f"{BASELINE}, no chunk ahead", is_ahead=False)
    for name, fields in SWITCHED_OFF.items():
        if all(option.partition(".")[2] in base.agent_options for option in fields):
            yield Arm(f"{BASELINE} + {name}", BASELINE, fields)


def run_arms(declared: Training) -> dict[str, RunArm]:
    """Return the whole trainings to compare, by name, the baseline first."""
    resolved = config_of(declared, Arm(BASELINE)).resolve()
    often = max(resolved.learner.steps_per_update, resolved.eval_frequency // 5)
    return {
        BASELINE: RunArm(),
        "one CPU device": RunArm(cpu_devices=1),
        "one evaluation": RunArm({"eval_frequency": resolved.steps_per_env}),
        "five times the evaluations": RunArm({"eval_frequency": often}),
        "no monitor": RunArm({"monitor_every": 0}),
        "a checkpoint at every evaluation": RunArm({"checkpoint_every_s": 0.0}),
        "a film of every tenth evaluation": RunArm({"film_every": 10}),
        "profile of 3 chunks": RunArm(profile_chunks=3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    options = _parse(argv)
    file = ResultsFile("presets", options.output, command_of(_SCRIPT, argv))
    myriad.configure()
    for declared in chosen(load().trainings["presets"], options, "presets"):
        print(f"\n{declared.agent} on {declared.env}\n")
        parts = {"knobs": _knobs, "runs": _runs, "ladder": _ladder, "target": _target}
        for part in options.part or PARTS:
            parts[part](declared, options, file)
    return report(file)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--full",
        action="store_true",
        help="measure every training of suite.toml, and the guide's sizes",
    )
    parser.add_argument("--agent", help="measure only this agent's trainings")
    parser.add_argument("--env", help="measure only trainings in this environment")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="part to measure (default: all; repeatable)"
    )
    parser.add_argument(
        "--rounds",
        type=count,
        default=_LEAST_ROUNDS,
        metavar="N",
        help=f"rounds, each of which calls everything once (default: {_LEAST_ROUNDS})",
    )
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help="trainings per preset to the target (default: 2, or 5 with --full)",
    )
    parser.add_output()
    return parser.parse_args(argv)


def _knobs(declared: Training, options: argparse.Namespace, file: ResultsFile) -> None:
    """Time the updates of every arm in alternation."""
    from myriad.timing import interleave

    compared = {arm.name: arm for arm in arms(declared, full=options.full)}
    timed = {name: Updates(declared, arm) for name, arm in compared.items()}
    samplers = [functools.partial(Updates.rate, each) for each in timed.values()]
    rates = interleave(samplers, least_rounds=options.rounds, most_rounds=options.rounds)
    rows = []
    samples = {}
    for (name, updates), of_arm in zip(timed.items(), rates, strict=True):
        resolved = updates.training.resolved
        columns = {
            "num_envs": resolved.num_envs,
            "scan_chunk_size": resolved.scan_chunk_size,
            "num_steps": updates.steps,
            "compile_s": updates.compile_s,
        }
        rows.append(_row(file, declared, name, of_arm, columns))
        differs = {"starts_from": compared[name].preset, "sets": compared[name].settings}
        samples[name] = differs | {"num_envs": resolved.num_envs, "steps_per_s": list(of_arm)}
    file.add_rows(rows, _described(declared) | {"arms": samples})
    _print_ratios(dict(zip(timed, rates, strict=True)), "arm")


def _runs(declared: Training, options: argparse.Namespace, file: ResultsFile) -> None:
    """Time whole trainings in alternation, each in a new process."""
    from myriad.timing import interleave

    compared = run_arms(declared)
    with tempfile.TemporaryDirectory() as folder:
        samplers = [
            functools.partial(_run_rate, declared, arm, folder) for arm in compared.values()
        ]
        rates = interleave(samplers, least_rounds=options.rounds, most_rounds=options.rounds)
    config = config_of(declared, Arm(BASELINE)).resolve().config
    columns = {"num_envs": config.num_envs, "scan_chunk_size": config.scan_chunk_size}
    rows = []
    samples = {}
    for (name, arm), of_arm in zip(compared.items(), rates, strict=True):
        rows.append(_row(file, declared, f"run: {name}", of_arm, columns))
        differs = {"starts_from": BASELINE, "sets": arm.settings}
        samples[name] = differs | {"num_envs": config.num_envs, "steps_per_s": list(of_arm)}
    file.add_rows(rows, _described(declared) | {"arms": samples})
    print("\nwhole trainings\n")
    _print_ratios(dict(zip(compared, rates, strict=True)), "training")


def _run_rate(declared: Training, arm: RunArm, folder: str) -> float:
    """Train once in a new process. Return the steps/s without compiling."""
    config = config_of(declared, Arm(BASELINE, fields=arm.fields))
    request = {
        "config": config.to_json(),
        "cpu_devices": arm.cpu_devices,
        "profile_chunks": arm.profile_chunks,
        "folder": folder,
    }
    # An arm's second process finds its programs in the cache.
    cache = f"{folder}/cache"
    target = "benchmarks.presets:run_once"
    return run(target, request, timeout_s=_TIMEOUT_S, MYRIAD_COMPILATION_CACHE=cache)["steps_per_s"]


def run_once(
    config: str, cpu_devices: int | None, profile_chunks: int, folder: str
) -> dict[str, float]:
    """Train once, and return the steps/s without compiling. Runs in a child."""
    import myriad
    from myriad.training.config import TrainingConfig

    myriad.configure(cpu_devices)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        results = myriad.train_and_evaluate(
            TrainingConfig.from_json(config),
            f"{place}/run",
            quiet=True,
            profile_chunks=profile_chunks,
        )
    timings = results.timings
    steps = results.evaluations[-1]["steps"]
    return {"steps_per_s": steps / (timings.total_s - timings.compile_s)}


def _ladder(declared: Training, options: argparse.Namespace, file: ResultsFile) -> None:
    """Time equal updates in ever fewer calls, in alternation."""
    # This imports JAX, which must not happen while asv discovers the suites.
    from benchmarks.harness.rungs import Ladder
    from myriad.timing import interleave

    for num_envs in _LADDER_ENVS:
        # The number of passes is the preset's, because many passes would hide the cost of stepping.
        config = config_of(declared, Arm(_FULL_SET, _FULL_SET, {"num_envs": num_envs}))
        ladder = Ladder(config.resolve(), _LADDER_UPDATES)
        rungs = ladder.rungs()
        samplers = [_sampler(rung, ladder) for rung in rungs.values()]
        rates = interleave(samplers, least_rounds=options.rounds, most_rounds=options.rounds)
        columns = {"num_envs": num_envs, "num_steps": ladder.steps}
        rows = []
        samples = {}
        for name, of_rung in zip(rungs, rates, strict=True):
            rows.append(_row(file, declared, f"ladder: {name}", of_rung, columns))
            samples[name] = {"num_envs": num_envs, "steps_per_s": list(of_rung)}
        file.add_rows(rows, _described(declared) | {"is_ladder": True, "arms": samples})
        print(f"\nladder, {num_envs:,} environments\n")
        _print_ratios(dict(zip(rungs, rates, strict=True)), "rung")


def _sampler(rung: Callable[[Any], Any], ladder: Any) -> Callable[[], float]:
    """Return a function that calls a rung on its own state and returns the steps/s."""
    import jax

    state = rung(ladder.state())  # compiles

    def rate() -> float:
        nonlocal state
        start = time.perf_counter()
        state = jax.block_until_ready(rung(state))
        return ladder.steps / (time.perf_counter() - start)

    return rate


def _target(declared: Training, options: argparse.Namespace, file: ResultsFile) -> None:
    """Train each preset to the target return, seed after seed, each in a new process."""
    if declared.target_return is None:
        return
    names = [BASELINE, "optimized", _FULL_SET, *(["as_documented"] if options.full else [])]
    found: dict[str, list[Row]] = {name: [] for name in names}
    for seed in range(options.seeds or (5 if options.full else 2)):
        for name in names:
            found[name].append(_trained(declared, name, seed, file))
    print("\nto the target return\n")
    print(markdown(_HEADERS, [_line(name, rows) for name, rows in found.items()]))


_HEADERS = ("arm", "reached", "s from start, median (least to most)", "training s", "steps", "MiB")


def _trained(declared: Training, name: str, seed: int, file: ResultsFile) -> Row:
    request = {"workload": declared.name, "name": name, "seed": seed, "started": time.time()}
    columns: Row = {"library": "myriad", "env": declared.env, "agent": declared.agent, "arm": name}
    with tempfile.TemporaryDirectory() as folder:
        try:
            columns |= run(
                "benchmarks.presets:train_once",
                request | {"folder": folder},
                timeout_s=_TIMEOUT_S,
                MYRIAD_COMPILATION_CACHE=folder,
            )
        except ChildError as error:
            columns |= error.columns
    train_s = columns.pop("train_s", "")
    row = new_row("presets", file.timestamp, **columns)
    of_training = {"arm": name, "seed": seed, "train_s": train_s, "columns": columns}
    file.add_rows([row], _described(declared) | of_training)
    return row | {"train_s": train_s}


def train_once(workload: str, name: str, seed: int, started: float, folder: str) -> Row:
    """Train one seed as a user would, and return the columns of its row. Runs in a child."""
    import myriad

    myriad.configure()
    declared = load().trainings["presets"][workload]
    arm = Arm(name, name)
    if name == "as_documented":
        arm = Arm(name, BASELINE, AS_DOCUMENTED[declared.agent])
    config = config_of(declared, arm, seed).model_copy(
        update={"target_return": declared.target_return}
    )
    row = train_to_target(config, started, folder)
    if name == "as_documented" and row["reason"]:
        row["status"] = "ok"  # a training that falls short is a result too
    return row | {"train_s": row["num_steps"] / row["steps_per_s"]}


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    done = [row for row in rows if row["status"] == "ok" and not row["reason"]]
    if not done:
        return [name, f"0 of {len(rows)}", "never", "-", "-", "-"]
    seconds = [row["run_s"] for row in done]
    return [
        name,
        f"{len(done)} of {len(rows)}",
        f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
        f"{statistics.median(row['train_s'] for row in done):.2f}",
        f"{statistics.median(row['num_steps'] for row in done):,.0f}",
        f"{max(row['peak_bytes'] for row in done) / 2**20:,.0f}",
    ]


def _row(
    file: ResultsFile, declared: Training, arm: str, rates: Sequence[float], columns: Row
) -> Row:
    described = machine_columns() | {"env": declared.env, "agent": declared.agent, "arm": arm}
    return new_row("presets", file.timestamp, **described | columns | spread(rates, "steps_per_s"))


def _described(declared: Training) -> dict[str, Any]:
    """Return the description of the arms' training for the raw samples."""
    target = declared.target_return
    return {"env": declared.env, "agent": declared.agent, "target_return": target}


def _print_ratios(rates: Mapping[str, Sequence[float]], what: str) -> None:
    """Print a line for each side: its steps/s, and their ratio to the first side's."""
    first = next(iter(rates.values()))
    lines = []
    for name, of_side in rates.items():
        ratios = [a / b for a, b in zip(of_side, first, strict=True)]
        times = "1"
        if of_side is not first:
            found = spread(ratios, "times")
            times = "{times:.2f} ({times_low:.2f} to {times_high:.2f})".format(**found)
        lines.append([name, f"{statistics.median(of_side):,.0f}", times])
    span = "95% interval" if len(first) >= LEAST_SAMPLES else "least to most"
    headers = (what, "steps/s", f"times {next(iter(rates))} ({span})")
    print(markdown(headers, lines))


if __name__ == "__main__":
    sys.exit(main())
