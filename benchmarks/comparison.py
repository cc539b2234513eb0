"""Myriad beside other libraries on one environment: steps/s of each, alternated in one run, and where ours is behind.

    python benchmarks/comparison.py                          all libraries, a quick set of sizes
    python benchmarks/comparison.py --full                   every size of suite.toml
    python benchmarks/comparison.py --library gymnax         ours beside that one alone; may be repeated
    python benchmarks/comparison.py --policy 64-64           with a network that chooses the actions
    python benchmarks/comparison.py --training               whole trainings by PPO, beside rejax

docs/comparison.md says what each row measures, what it does not, and what is unfair to whom.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness.command_line import (
    Parser,
    command_of,
    count,
    guarded,
    progress,
    resolved_env,
)
from benchmarks.harness.interleave import Budget, Contender, Outcome, ratios
from benchmarks.harness.results import ResultsFile, markdown, spread, times
from benchmarks.harness.workloads import (
    DEVICES,
    LIBRARIES,
    SIDES,
    Declaration,
    Workload,
    known,
    load,
    tier_from_environment,
)
from benchmarks.sides import training as training_peers
from benchmarks.sides.network_policy import NETWORKS, agent_of, num_multiplications
from benchmarks.throughput import measure

_SCRIPT = "benchmarks/comparison.py"
OURS = "myriad"
_ACTIONS = {"random": "random actions", training_peers.AGENT: "whole trainings by PPO"}
# A network's chunk multiplies at most so often, or is one step: a call that takes a processor a
# second, not minutes.
_MULTIPLICATIONS_PER_CHUNK = 10_000_000_000
# Episodes under one network last equally long everywhere, to within what so many of them scatter.
_ENOUGH_EPISODES, _POLICY_TOLERANCE = 2_000, 0.1
BUDGET = Budget(num_rounds=11, max_s=20.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    options = _parse(argv)
    declaration = load()
    workloads = chosen(options, declaration)
    asked = training_peers.LIBRARIES if options.training else options.library
    sides = sides_of(asked, workloads[0], declaration)
    file = ResultsFile("comparison", options.output, command_of(_SCRIPT, argv))
    groups = []
    with progress(len(workloads)) as on_event:
        for workload in workloads:
            contenders = [Contender(side, workload) for side in sides]
            groups.append(
                measure(contenders, BUDGET, file, declaration, on_event, hold=_hold_to_policy)
            )
    print(report(groups))
    print(
        f"\nrows:           {file.path}\nraw samples:    {file.samples_path}\nreproduce with: {file.command}"
    )
    return all(group[0].status == "ok" for group in groups)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--full", action="store_true", help="every size of suite.toml, up to 100,000 environments"
    )
    sizes.add_argument(
        "--num-envs",
        type=count,
        metavar="N",
        help="environments side by side (default: suite.toml's)",
    )
    parser.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="NAME",
        help=f"beside {OURS}, one or several with commas between (default: all that have the environment)",
    )
    parser.add_argument(
        "--steps-per-env",
        type=count,
        metavar="N",
        help="steps of every environment in a timed call (default: as many as last 0.05 s; slow libraries take fewer)",
    )
    parser.add_argument(
        "--policy",
        choices=["none", *NETWORKS],
        default="none",
        help="widths of a network that chooses the actions; sizes too large for it are left out (default: none)",
    )
    sizes.add_argument(
        "--training",
        action="store_true",
        help="train by PPO, beside rejax at equal hyperparameters",
    )
    parser.add_argument("--env", help="environment, or package.module:Class (default: cartpole)")
    parser.add_output()
    options = parser.parse_args(argv)
    if options.training and (
        options.library or options.steps_per_env or options.env or options.policy != "none"
    ):
        parser.error("--training measures what suite.toml declares, and goes with --output alone")
    return options


def chosen(options: argparse.Namespace, declaration: Declaration) -> list[Workload]:
    """Return the workloads that the flags ask for: sizes of suite.toml, or the nearest with the flags' values."""
    if options.training:
        return [declaration.workloads["comparison"]["cartpole-ppo"]]
    declared = sorted(
        declaration.select("comparison", "full").values(), key=lambda workload: workload.num_envs
    )
    if options.num_envs:
        nearest = [workload for workload in declared if workload.num_envs <= options.num_envs][
            -1
        ]  # one declares 1
        declared = [replace(nearest, num_envs=options.num_envs, devices=DEVICES)]
    elif not options.full:
        declared = [workload for workload in declared if tier_from_environment() in workload.tiers]
    env = resolved_env(options.env or "cartpole")
    workloads = [replace(each, env=env, num_steps=options.steps_per_env) for each in declared]
    return (
        workloads
        if options.policy == "none"
        else _with_network(agent_of(options.policy), workloads)
    )


def _with_network(agent: str, workloads: Sequence[Workload]) -> list[Workload]:
    """Return the workloads under a network's policy, in chunks of as many steps as a processor does in about a second.

    Where even one step takes it many seconds the size is left out, unless there is no other.
    """
    steps = {
        each: _MULTIPLICATIONS_PER_CHUNK / (each.num_envs * num_multiplications(agent))
        for each in workloads
    }
    kept = [each for each in workloads if steps[each] > 0.5] or workloads
    return [
        replace(
            each, agent=agent, scan_chunk_size=min(each.scan_chunk_size, max(1, int(steps[each])))
        )
        for each in kept
    ]


def sides_of(asked: Sequence[str], workload: Workload, declaration: Declaration) -> list[str]:
    """Return the sides to run, ours first: those asked for, or all that have the environment.

    Raises:
        SuiteError: there is no library of such a name.
    """
    names = [name for text in asked for name in text.split(",")]
    sides = [known(name, SIDES, "library") for name in names]
    steppers = [library for library in LIBRARIES if library not in training_peers.LIBRARIES]
    sides = sides or [library for library in steppers if declaration.twin_of(library, workload)]
    return list(dict.fromkeys([OURS, *sides]))


def _hold_to_policy(outcomes: Sequence[Outcome]) -> None:
    """Fail a side whose episodes under a network last otherwise than ours: it steps another policy."""
    ours, *others = outcomes
    if ours.contender.workload.agent not in map(agent_of, NETWORKS) or ours.status != "ok":
        return
    expected = ours.stats["mean_episode_length"]
    for other in (each for each in others if each.status == "ok"):
        mean, enough = (
            other.stats["mean_episode_length"],
            other.stats["num_episodes"] >= _ENOUGH_EPISODES,
        )
        if enough and expected and abs(mean / expected - 1) > _POLICY_TOLERANCE:
            other.status = "failed"
            other.reason = f"its episodes last {mean:.2f} steps, and Myriad's {expected:.2f} under the same network"


def report(groups: Sequence[Sequence[Outcome]]) -> str:
    """Write where ours is not ahead, then a table per size with what its reader must know beneath."""
    return "\n\n".join([_behind(groups), *map(_section, groups)])


def _behind(groups: Sequence[Sequence[Outcome]]) -> str:
    """Say at which sizes which library is as fast as ours or faster, and which compile for less time."""
    lines = []
    for ours, *others in groups:
        size = _size(ours.contender.workload)
        if ours.status != "ok":
            lines.append(f"- {size}: Myriad {ours.status}: {ours.reason}")
            continue
        measured = [other for other in others if other.status == "ok"]
        fast = [
            f"{each.contender.side} (Myriad's {times(ours, each)} times that)"
            for each in measured
            if _is_level(ours, each)
        ]
        sooner = [
            f"{each.contender.side} ({_compiling(each)})"
            for each in measured
            if _is_ready_sooner(ours, each)
        ]
        lines += [f"- {size}, steps/s: {', '.join(fast)}"] if fast else []
        lines += (
            [f"- {size}, seconds of compiling ({_compiling(ours)}): {', '.join(sooner)}"]
            if sooner
            else []
        )
    if lines:
        return "\n".join(["Where Myriad is not ahead:", *lines])
    beside = any(outcome.status == "ok" for _, *others in groups for outcome in others)
    return "Myriad is ahead of all that was measured." if beside else "Nothing else was measured."


def _is_level(ours: Outcome, other: Outcome) -> bool:
    """Whether the other is as fast as ours or faster, as far as the interval of the ratio tells."""
    return spread(ratios(ours, other), "ratio")["ratio_low"] <= 1.0


def _is_ready_sooner(ours: Outcome, other: Outcome) -> bool:
    return (other.prepared["compile_s"] or 0.0) < ours.prepared["compile_s"]


def _section(group: Sequence[Outcome]) -> str:
    """Write the table of one size, and beneath it the reasons of the rows, equal ones once."""
    workload = group[0].contender.workload
    actions = _ACTIONS.get(workload.agent, f"actions of the network {workload.agent}")
    headers = [
        "library",
        "steps/s",
        "95% interval",
        "Myriad's, times that",
        "compiling, s",
        "status",
    ]
    table = markdown(headers, [_cells(group[0], outcome) for outcome in group])
    notes = [f"* {outcome.contender.side}: {outcome.reason}" for outcome in group if outcome.reason]
    return "\n".join([f"{_size(workload)} of {workload.env}, {actions}", "", table, *notes])


def _cells(ours: Outcome, outcome: Outcome) -> list[str]:
    side = outcome.contender.side
    if outcome.status != "ok":
        return [side, "-", "-", "-", "-", outcome.status]
    rates = spread([rate for rate in outcome.steps_per_s() if rate is not None], "rate")
    interval = f"{_rate(rates['rate_low'])} to {_rate(rates['rate_high'])}"
    ratio = "1" if outcome is ours else times(ours, outcome)
    return [side, _rate(rates["rate"]), interval, ratio, _compiling(outcome), outcome.status]


def _compiling(outcome: Outcome) -> str:
    compile_s = outcome.prepared["compile_s"]
    return "none" if compile_s is None else f"{compile_s:.1f}"


def _size(workload: Workload) -> str:
    return f"{workload.num_envs:,} environment{'s' * (workload.num_envs > 1)}"


def _rate(rate: float) -> str:
    """Write steps/s with three digits that count."""
    return f"{float(f'{rate:.3g}'):,.0f}"


if __name__ == "__main__":
    sys.exit(main())
