"""Compare Myriad's steps/s with other libraries' on one environment, and report where it is behind.

    python benchmarks/comparison.py                          all libraries, a quick set of sizes
    python benchmarks/comparison.py --full                   every size of suite.toml
    python benchmarks/comparison.py --library gymnax         ours beside that one; repeatable
    python benchmarks/comparison.py --policy 64-64           with a network that chooses the actions
    python benchmarks/comparison.py --training               whole trainings by PPO, beside rejax

docs/comparison.md explains what each row measures, what it leaves out, and where it is unfair.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.harness.alternation import Budget, Outcome, ratios
from benchmarks.harness.plausibility import measure
from benchmarks.harness.registry import DECLARED, LIBRARIES, OURS, TRAINERS, env_id_of, known
from benchmarks.harness.results import spread
from benchmarks.harness.tables import markdown, times
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import load, sizes_of
from benchmarks.libraries.network_policy import NETWORKS, agent_of, num_multiplications
from benchmarks.libraries.ppo_training import AGENT as PPO
from benchmarks.runner import NUM_ENVS, Run, Script, environment, switch, text, whole

_ACTIONS = {"random": "random actions", PPO: "whole trainings by PPO"}
# The most multiplications in a network's chunk, unless it is a single step. A call then takes a
# processor a second, not minutes.
_MULTIPLICATIONS_PER_CHUNK = 10_000_000_000
# Episodes under the same network must last equally long in every library, up to their scatter.
_ENOUGH_EPISODES = 2_000
_POLICY_TOLERANCE = 0.1
BUDGET = Budget(num_rounds=11, max_s=20.0)


def _run(run: Run) -> bool:
    options = run.options
    workloads = chosen(options)
    asked = TRAINERS if options.training else options.library
    names = names_of(asked, workloads[0])
    groups = []
    for workload in workloads:
        cases = [Case(name, workload) for name in names]
        groups.append(measure(cases, BUDGET, run.file, also_check=_check_policy))
    print(report(groups))
    return all(group[0].status == "ok" for group in groups)


def chosen(options: Any) -> list[Workload]:
    """Return the declared workloads that the flags select, with the flags' values.

    With a network's policy a chunk takes about a second on a processor. A size is left out if even
    one step takes many seconds, unless there is no other size.
    """
    if options.training:
        return [load().of("comparison")["cartpole-ppo"]]
    workloads = sizes_of("comparison", options, options.steps_per_env)
    if not options.policy:
        return workloads
    agent = agent_of(options.policy)
    steps = {
        each: _MULTIPLICATIONS_PER_CHUNK / (each.num_envs * num_multiplications(agent))
        for each in workloads
    }
    kept = [each for each in workloads if steps[each] > 0.5] or workloads
    chunks = [min(each.scan_chunk_size, max(1, int(steps[each]))) for each in kept]
    return [
        replace(each, agent=agent, scan_chunk_size=chunk)
        for each, chunk in zip(kept, chunks, strict=True)
    ]


def names_of(asked: Sequence[str], workload: Workload) -> list[str]:
    """Return the libraries to run, ours first: the selected ones, or all that have the environment.

    Raises:
        SuiteError: there is no library of this name.
    """
    given = [name for text in asked for name in text.split(",")]
    names = [known(name, DECLARED, "library") for name in given]
    steppers = [library for library in LIBRARIES if library not in TRAINERS]
    names = names or [library for library in steppers if env_id_of(library, workload.env)]
    return list(dict.fromkeys([OURS, *names]))


def _check_policy(outcomes: Sequence[Outcome]) -> None:
    """Mark a library as failed if its episodes under a network do not last as long as ours."""
    ours, *others = outcomes
    if ours.case.workload.agent not in map(agent_of, NETWORKS) or ours.status != "ok":
        return
    expected = ours.stats["mean_episode_length"]
    for other in (each for each in others if each.status == "ok"):
        mean = other.stats["mean_episode_length"]
        enough = other.stats["num_episodes"] >= _ENOUGH_EPISODES
        if enough and expected and abs(mean / expected - 1) > _POLICY_TOLERANCE:
            other.status = "failed"
            other.reason = (
                f"its episodes last {mean:.2f} steps, "
                f"and Myriad's {expected:.2f} under the same network"
            )


def report(groups: Sequence[Sequence[Outcome]]) -> str:
    """Write where Myriad is not ahead, then a table per size followed by its notes."""
    return "\n\n".join([_behind(groups), *map(_section, groups)])


def _behind(groups: Sequence[Sequence[Outcome]]) -> str:
    """Say which libraries are as fast as Myriad or compile sooner, and at which sizes."""
    lines = []
    for ours, *others in groups:
        size = _size(ours.case.workload)
        if ours.status != "ok":
            lines.append(f"- {size}: Myriad {ours.status}: {ours.reason}")
            continue
        measured = [other for other in others if other.status == "ok"]
        # At least as fast as ours, within the interval of the ratio.
        fast = [
            f"{each.case.side} (Myriad's {times(ours, each)} times that)"
            for each in measured
            if spread(ratios(ours, each), "ratio")["ratio_low"] <= 1.0
        ]
        sooner = [
            f"{each.case.side} ({_compiling(each)})"
            for each in measured
            if (each.prepared["compile_s"] or 0.0) < ours.prepared["compile_s"]
        ]
        if fast:
            lines.append(f"- {size}, steps/s: {', '.join(fast)}")
        if sooner:
            lines.append(
                f"- {size}, seconds of compiling ({_compiling(ours)}): {', '.join(sooner)}"
            )
    if lines:
        return "\n".join(["Where Myriad is not ahead:", *lines])
    if any(outcome.status == "ok" for _, *others in groups for outcome in others):
        return "Myriad is ahead of every library that was measured."
    return "No other library was measured."


def _section(group: Sequence[Outcome]) -> str:
    """Write the table of one size, followed by the reasons of its rows without repetitions."""
    workload = group[0].case.workload
    actions = _ACTIONS.get(workload.agent, f"actions of the network {workload.agent}")
    headers = ["library", "steps/s", "95% interval", "Myriad's, times that", "compiling, s"]
    rows = []
    for outcome in group:
        cells = ["-"] * 4
        if outcome.status == "ok":
            found = spread(outcome.rates(), "rate")
            ends = (found["rate"], found["rate_low"], found["rate_high"])
            rate, low, high = (f"{float(f'{end:.3g}'):,.0f}" for end in ends)  # three digits
            ratio = "1" if outcome is group[0] else times(group[0], outcome)
            cells = [rate, f"{low} to {high}", ratio, _compiling(outcome)]
        rows.append([outcome.case.side, *cells, outcome.status])
    table = markdown([*headers, "status"], rows)
    notes = [f"* {outcome.case.side}: {outcome.reason}" for outcome in group if outcome.reason]
    return "\n".join([f"{_size(workload)} of {workload.env}, {actions}", "", table, *notes])


def _compiling(outcome: Outcome) -> str:
    compile_s = outcome.prepared["compile_s"]
    return "none" if compile_s is None else f"{compile_s:.1f}"


def _size(workload: Workload) -> str:
    return f"{workload.num_envs:,} environment{'s' * (workload.num_envs > 1)}"


SCRIPT = Script(
    "comparison",
    __doc__,
    _run,
    {
        "--full": switch("measure every size of suite.toml, up to 100,000 environments"),
        "--num-envs": NUM_ENVS,
        "--library": text(
            f"libraries to compare {OURS} with, separated by commas (default: all that have the "
            "environment)",
            [],
            action="append",
            metavar="NAME",
        ),
        "--steps-per-env": whole(
            "steps of each environment in a timed call (default: as many as take 0.05 s)"
        ),
        "--scan-chunk-size": whole("number of steps in a compiled call (default: suite.toml's)"),
        "--policy": text(
            "hidden widths of a network that chooses the actions (default: random actions)",
            choices=NETWORKS,
        ),
        "--training": switch("compare whole PPO trainings with rejax's at equal hyperparameters"),
        "--env": text("environment, or package.module:Class (default: cartpole)", type=environment),
    },
    exclusive=[("--full", "--num-envs", "--training")],
    mode=lambda options: "--training" if options.training else "",
    # A training is what suite.toml declares.
    goes_with=dict.fromkeys(
        ("--library", "--steps-per-env", "--scan-chunk-size", "--policy", "--env"), ("",)
    ),
    suite="comparison",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
