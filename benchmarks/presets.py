"""Measure the gain of presets, setting by setting, and of compiled programs over a host loop.

    python benchmarks/presets.py                        the quick trainings of suite.toml
    python benchmarks/presets.py --full                 all of them, and the guide's exact sizes
    python benchmarks/presets.py --part ladder --env cartpole-control
    python benchmarks/presets.py --part target --seeds 5

An asv suite and a command line in three parts. `knobs` times updates of all arms in one process, in
rounds of random order. Its arms are the presets, the baseline with each single setting of a preset,
and the preset without each of them. `ladder` times equal updates in ever fewer calls. `target`
trains each preset in a new process until it reaches the target return.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.results import Row, machine_columns, markdown, spread
from benchmarks.harness.trainings import trained
from benchmarks.harness.worker import seconds_of
from benchmarks.harness.workloads import Training, chosen
from benchmarks.runner import AGENT, ENV, Run, Script, in_turns, ratio_table, switch, text, whole

PARTS = ("knobs", "ladder", "target")
BASELINE = "baseline"
_FULL_SET = "ultra_fast"
_LEAST_ROUNDS = 7
_SAMPLE_S = 0.25  # the shortest sample
_MOST_UPDATES = 1 << 20
# Numbers of environments in the ladder.
_LADDER_ENVS = (64, 512)
# Updates in one call of a rung.
_LADDER_UPDATES = 4
# The exact sizes of the guide that docs/presets.md discusses: 512 environments in batches of
# 262,144 rows, minibatches of 32,768, one pass.
AS_DOCUMENTED: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        "num_envs": 512,
        "rollout_steps": 512,
        "agent.num_minibatches": 8,
        "agent.num_epochs": 1,
    },
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
    """A named configuration, and how it runs.

    Attributes:
        name: its name in the tables.
        preset: the preset on which it is based.
        fields: the fields that differ from the preset.
        donates: whether the next state reuses the state's buffers.
    """

    name: str
    preset: str = BASELINE
    fields: Mapping[str, Any] = field(default_factory=dict)
    donates: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the preset, by the names on the results' pages."""
        fields = {name.removeprefix("agent."): value for name, value in self.fields.items()}
        return fields if self.donates else fields | {"donation": False}


class Presets(AsvSuite):
    """Seconds of a few updates with the preset that changes the most settings."""

    suite = "presets"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "1"

    def prepare(self, declared: Training) -> None:
        self.timed = Updates(declared, Arm(_FULL_SET, _FULL_SET))

    def time_updates(self, workload: str) -> None:
        """Train over a window; the report that ends it has been fetched, so the device is done."""
        self.timed.run()

    def program(self, workload: str) -> Any:
        """Return the compiled updates, for the gate."""
        return self.timed.training.updates


class Updates:
    """Updates of one arm, from a state in which every update learns."""

    def __init__(self, declared: Training, arm: Arm):
        from myriad.programs import TrainingProgram

        start = time.perf_counter()
        self.training = TrainingProgram(config_of(declared, arm), donate=arm.donates)
        self.training.warm_up()
        self.num_updates = 1
        self.run()
        self.compile_s = time.perf_counter() - start
        while self.num_updates < _MOST_UPDATES and (seconds := seconds_of(self.run)) < _SAMPLE_S:
            self.num_updates *= max(2, round(_SAMPLE_S / seconds))
        # steps of all environments in a call of `run`
        self.steps = self.num_updates * self.training.steps_per_update

    def run(self) -> None:
        """Train, and fetch the reports."""
        self.training.run_updates(self.num_updates)

    def rate(self) -> float:
        """Return the steps/s of a call."""
        return self.steps / seconds_of(self.run)


def fields_of(declared: Training, arm: Arm, seed: int = 0) -> dict[str, Any]:
    """Return the training of an arm as `create_config` takes it."""
    fields: dict[str, Any] = {"env": declared.env, "agent": declared.agent}
    fields |= {"preset": arm.preset, "seed": seed, **arm.fields}
    return fields if declared.num_steps is None else fields | {"total_steps": declared.num_steps}


def config_of(declared: Training, arm: Arm, seed: int = 0) -> Any:
    """Return the configuration of an arm."""
    from myriad import create_config

    return create_config(**fields_of(declared, arm, seed))


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
    base = config_of(declared, Arm(BASELINE))
    for name, value in fast.items():
        yield Arm(f"{BASELINE} + {name}", BASELINE, {name: value})
        yield Arm(f"{_FULL_SET} - {name}", _FULL_SET, {name: base.value_of(name)})
    yield Arm(f"{BASELINE} without donation", donates=False)
    for name, fields in SWITCHED_OFF.items():
        if all(option.partition(".")[2] in base.agent_options for option in fields):
            yield Arm(f"{BASELINE} + {name}", BASELINE, fields)


def _measure(run: Run) -> None:
    import myriad

    myriad.configure()
    for declared in chosen("presets", run.options):
        print(f"\n{declared.agent} on {declared.env}\n")
        parts = {"knobs": _knobs, "ladder": _ladder, "target": _target}
        for part in run.options.part or PARTS:
            parts[part](declared, run)


def _save(
    run: Run,
    declared: Training,
    rates: Mapping[str, Sequence[float]],
    columns: Mapping[str, Row],
    *,
    prefix: str = "",
    what: str = "arm",
    differs: Mapping[str, Any] = {},
    **about: Any,
) -> None:
    """Save a row for each arm, with its rates in the samples, and print their ratios."""
    described = machine_columns() | {"env": declared.env, "agent": declared.agent}
    rows = []
    samples = {}
    for name, own in rates.items():
        rows.append(described | columns[name] | spread(own, "steps_per_s") | {"arm": prefix + name})
        size = {"num_envs": columns[name]["num_envs"], "steps_per_s": list(own)}
        samples[name] = differs.get(name, {}) | size
    run.file.add(rows, _described(declared) | about | {"arms": samples})
    print(ratio_table(what, rates))


def _knobs(declared: Training, run: Run) -> None:
    """Time the updates of every arm in alternation."""
    compared = {arm.name: arm for arm in arms(declared, full=run.options.full)}
    timed = {name: Updates(declared, arm) for name, arm in compared.items()}
    rates = in_turns({name: each.rate for name, each in timed.items()}, run.options.rounds)
    columns = {
        name: {
            "num_envs": each.training.config.num_envs,
            "scan_chunk_size": each.training.scan_chunk_size,
            "num_steps": each.steps,
            "compile_s": each.compile_s,
        }
        for name, each in timed.items()
    }
    differs = {
        arm.name: {"starts_from": arm.preset, "sets": arm.settings} for arm in compared.values()
    }
    _save(run, declared, rates, columns, differs=differs)


def _ladder(declared: Training, run: Run) -> None:
    """Time equal updates in ever fewer calls, in alternation."""
    # This imports JAX, which must not happen while asv discovers the suites.
    from benchmarks.harness.rungs import Ladder

    for num_envs in _LADDER_ENVS:
        # The number of passes is the preset's, because many passes would hide the cost of stepping.
        config = config_of(declared, Arm(_FULL_SET, _FULL_SET, {"num_envs": num_envs}))
        ladder = Ladder(config, _LADDER_UPDATES)
        samplers = {name: _sampler(rung, ladder) for name, rung in ladder.rungs().items()}
        rates = in_turns(samplers, run.options.rounds)
        columns = {name: {"num_envs": num_envs, "num_steps": ladder.steps} for name in rates}
        print(f"\nladder, {num_envs:,} environments\n")
        _save(run, declared, rates, columns, prefix="ladder: ", what="rung", is_ladder=True)


def _sampler(rung: Callable[[Any], Any], ladder: Any) -> Callable[[], float]:
    """Return a function that calls a rung on its own state and returns the steps/s."""
    from myriad.timing import timed

    state = rung(ladder.state())  # compiles

    def rate() -> float:
        nonlocal state
        state, seconds = timed(rung, state)
        return ladder.steps / seconds

    return rate


def _target(declared: Training, run: Run) -> None:
    """Train each preset to the target return, seed after seed, each in a new process."""
    if declared.target_return is None:
        return
    compared = {name: Arm(name, name) for name in (BASELINE, "optimized", _FULL_SET)}
    if run.options.full:
        compared["as_documented"] = Arm("as_documented", BASELINE, AS_DOCUMENTED[declared.agent])
    found: dict[str, list[Row]] = {name: [] for name in compared}
    for seed in range(run.options.seeds or (5 if run.options.full else 2)):
        for name, arm in compared.items():
            fields = fields_of(declared, arm, seed) | {"target_return": declared.target_return}
            reply = trained(fields)
            row = {"library": "myriad", "env": declared.env, "agent": declared.agent}
            row |= reply["row"] | {"arm": name}
            if name == "as_documented" and "train_s" in reply:
                row["status"] = "ok"  # a training that falls short is a result too
            train_s = reply.get("train_s", "")
            of_training = {"arm": name, "seed": seed, "train_s": train_s, "columns": row}
            run.file.add([row], _described(declared) | of_training)
            found[name].append(run.file.rows[-1] | {"train_s": train_s})
    print("\nto the target return\n")
    print(markdown(_HEADERS, [_line(name, rows) for name, rows in found.items()]))


_HEADERS = ("arm", "reached", "s from start, median (least to most)", "training s", "steps", "MiB")


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


def _described(declared: Training) -> dict[str, Any]:
    """Return the description of the arms' training for the raw samples."""
    target = declared.target_return
    return {"env": declared.env, "agent": declared.agent, "target_return": target}


SCRIPT = Script(
    "presets",
    __doc__,
    _measure,
    {
        "--full": switch("measure every training of suite.toml, and the guide's sizes"),
        "--agent": AGENT,
        "--env": ENV,
        "--part": text(
            "part to measure (default: all; repeatable)", action="append", choices=PARTS
        ),
        "--rounds": whole(
            f"rounds, each of which calls everything once (default: {_LEAST_ROUNDS})",
            _LEAST_ROUNDS,
        ),
        "--seeds": whole("trainings per preset to the target (default: 2, or 5 with --full)"),
    },
    suite="presets",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
