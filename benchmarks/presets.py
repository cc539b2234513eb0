"""Measure the gain of presets, setting by setting.

    python benchmarks/presets.py                        the quick trainings of suite.toml
    python benchmarks/presets.py --full                 all of them, and the guide's exact sizes
    python benchmarks/presets.py --part knobs --env cartpole-control
    python benchmarks/presets.py --part target --seeds 5

A command line in two parts. `knobs` times updates of all variants in one
process, in rounds of random order. They are the presets, the baseline with each single setting of a
preset, and the preset without each of them. `target` trains each preset in a new process until it
reaches the target return.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.harness.alternation import in_turns
from benchmarks.harness.results import Row, machine_columns, spread
from benchmarks.harness.tables import ratio_table
from benchmarks.harness.trainings import trained, trainings_table
from benchmarks.harness.worker import calibrated, seconds_of
from benchmarks.harness.workloads import Training, chosen
from benchmarks.runner import AGENT, ENV, Run, Script, switch, text, whole

BASELINE = "baseline"
_FULL_SET = "ultra_fast"
_LEAST_ROUNDS = 7
_SAMPLE_S = 0.25  # the shortest sample
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
class Variant:
    """A named configuration, and how it runs."""

    name: str
    preset: str = BASELINE
    fields: Mapping[str, Any] = field(default_factory=dict)  # those that differ from the preset
    donates: bool = True  # whether the next state reuses the state's buffers


class Updates:
    """Updates of one variant, from a state in which every update learns."""

    def __init__(self, declared: Training, variant: Variant):
        from myriad.programs import TrainingProgram

        start = time.perf_counter()
        self.training = TrainingProgram(config_of(declared, variant), donate=variant.donates)
        self.training.warm_up()
        self.training.run_updates(1)
        self.compile_s = time.perf_counter() - start
        self.num_updates = calibrated(self.training.run_updates, 1, _SAMPLE_S)
        # steps of all environments in a sample
        self.steps = self.num_updates * self.training.steps_per_update

    def rate(self) -> float:
        """Train, fetch the reports, and return the steps/s."""
        return self.steps / seconds_of(self.training.run_updates, self.num_updates)


def fields_of(declared: Training, variant: Variant, seed: int = 0) -> dict[str, Any]:
    """Return the training of a variant as `create_config` takes it."""
    fields: dict[str, Any] = {"env": declared.env, "agent": declared.agent}
    fields |= {"preset": variant.preset, "seed": seed, **variant.fields}
    return fields if declared.num_steps is None else fields | {"total_steps": declared.num_steps}


def config_of(declared: Training, variant: Variant, seed: int = 0) -> Any:
    """Return the configuration of a variant."""
    from myriad import create_config

    return create_config(**fields_of(declared, variant, seed))


def variants(declared: Training, *, full: bool) -> Iterator[Variant]:
    """Yield the variants of a training: first the presets, then one setting at a time."""
    from myriad.presets import load_preset

    agent = declared.agent
    env = declared.env
    yield Variant(BASELINE)
    yield Variant("optimized", "optimized")
    yield Variant(_FULL_SET, _FULL_SET)
    if full:
        yield Variant("as_documented", BASELINE, AS_DOCUMENTED[agent])
    fast = load_preset(_FULL_SET, agent, env).fields
    base = config_of(declared, Variant(BASELINE))
    for name, value in fast.items():
        yield Variant(f"{BASELINE} + {name}", BASELINE, {name: value})
        yield Variant(f"{_FULL_SET} - {name}", _FULL_SET, {name: base.value_of(name)})
    yield Variant(f"{BASELINE} without donation", donates=False)
    for name, fields in SWITCHED_OFF.items():
        if all(option.partition(".")[2] in base.agent_options for option in fields):
            yield Variant(f"{BASELINE} + {name}", BASELINE, fields)


def _measure(run: Run) -> None:
    import myriad

    myriad.configure()
    for declared in chosen("presets", run.options):
        print(f"\n{declared.agent} on {declared.env}\n")
        for part in run.options.part or PARTS:
            PARTS[part](declared, run)


def _knobs(declared: Training, run: Run) -> None:
    """Time the updates of every variant in alternation."""
    compared = {each.name: each for each in variants(declared, full=run.options.full)}
    timed = {name: Updates(declared, each) for name, each in compared.items()}
    rates = in_turns({name: each.rate for name, each in timed.items()}, run.options.rounds)
    described = machine_columns() | {"env": declared.env, "agent": declared.agent}
    rows = []
    arms = {}
    for name, each in timed.items():
        own = {
            "arm": name,
            "num_envs": each.training.config.num_envs,
            "scan_chunk_size": each.training.scan_chunk_size,
            "num_steps": each.steps,
            "compile_s": each.compile_s,
        }
        rows.append(described | own | spread(rates[name], "steps_per_s"))
        arms[name] = {
            "variant": asdict(compared[name]),
            "num_envs": own["num_envs"],
            "steps_per_s": rates[name],
        }
    run.file.add(rows, _described(declared) | {"arms": arms})
    print(ratio_table(rates))


def _target(declared: Training, run: Run) -> None:
    """Train each preset to the target return, seed after seed, each in a new process."""
    if declared.target_return is None:
        return
    options = run.options
    compared = {name: Variant(name, name) for name in (BASELINE, "optimized", _FULL_SET)}
    if options.full:
        of_guide = Variant("as_documented", BASELINE, AS_DOCUMENTED[declared.agent])
        compared[of_guide.name] = of_guide
    found: dict[tuple[str, ...], list[Row]] = {}
    for seed in range(options.seeds or (5 if options.full else 2)):
        for name, variant in compared.items():
            fields = fields_of(declared, variant, seed) | {"target_return": declared.target_return}
            about = _described(declared) | {"arm": name}
            # That the guide's sizes fall short is a result too.
            row = trained(fields, run.file, about, may_miss=name == "as_documented")
            found.setdefault((name,), []).append(row)
    print("\nto the target return\n")
    print(trainings_table(("variant",), found))


def _described(declared: Training) -> dict[str, Any]:
    """Return the description of the variants' training for the raw samples."""
    target = declared.target_return
    return {"env": declared.env, "agent": declared.agent, "target_return": target}


PARTS = {"knobs": _knobs, "target": _target}
SCRIPT = Script(
    "presets",
    __doc__,
    _measure,
    {
        "--full": switch("measure every training of suite.toml, and the guide's sizes"),
        "--agent": AGENT,
        "--env": ENV,
        "--part": text(
            "part to measure (default: all; repeatable)", action="append", choices=[*PARTS]
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
