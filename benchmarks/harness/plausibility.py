"""Measure cases in alternation, and fail those that step a different environment than declared.

suite.toml declares the sanity checks, which say how an environment's episodes must look.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from benchmarks.harness.alternation import Budget, Outcome, alternate, ratios
from benchmarks.harness.registry import env_id_of, library_of
from benchmarks.harness.results import ResultsFile, columns_of, spread
from benchmarks.harness.workload import Case
from benchmarks.harness.workloads import SanityCheck, load


def measure(
    cases: Sequence[Case],
    budget: Budget,
    file: ResultsFile,
    also_check: Callable[[list[Outcome]], None] = lambda outcomes: None,
) -> list[Outcome]:
    """Alternate the cases, check their episodes and save their rows.

    `also_check` gets the outcomes before they are saved. It may mark some as failed.

    Raises:
        DeviceNotFoundError: this machine lacks the requested platform.
    """
    from myriad.errors import DeviceNotFoundError

    outcomes = alternate([as_declared(case) for case in cases], budget)
    for outcome in outcomes:
        if outcome.error == "DeviceNotFoundError":
            raise DeviceNotFoundError(outcome.reason)
        check_sanity(outcome, load().sanity_check_of(outcome.case.workload))
    also_check(outcomes)
    samples = {outcome.case.label: asdict(outcome) for outcome in outcomes}
    ours, *others = outcomes
    rows = [columns_of(outcome) for outcome in outcomes]
    for row, other in zip(rows[1:], others, strict=True):
        if pairs := other.status == "ok" and ratios(ours, other):
            row.update(spread(pairs, "ratio") | {"samples": row["samples"]})
    file.add(rows, samples)
    return outcomes


def as_declared(case: Case) -> Case:
    """Return the case with what suite.toml and libraries.toml say of its environment."""
    check = load().sanity_check_of(case.workload)
    returns = check is not None and check.statistic == "mean_episode_return"
    return replace(case, env_id=env_id_of(case.side, case.workload.env), returns=returns)


def check_sanity(outcome: Outcome, check: SanityCheck | None) -> None:
    """Mark an outcome as failed if its episodes don't fit its environment and policy.

    If the check is waived for the library, the outcome says what it measured instead.
    """
    if check is None or outcome.status != "ok":
        return
    num_episodes = outcome.stats["num_episodes"]
    mean = outcome.stats[check.statistic]
    expected = f"{check.expected:g} +/- {check.tolerance:g}"
    what = check.statistic.replace("_", " ")
    if waiver := check.waived.get(library_of(outcome.case.side)):
        measured = "" if mean is None else f" ({what} {mean:.2f} here, {expected} expected)"
        outcome.reason = f"another environment: {waiver}{measured}"
    # `not ... <=`, because a mean of NaN must fail too.
    elif num_episodes >= check.num_episodes and not abs(mean - check.expected) <= check.tolerance:
        outcome.status = "failed"
        outcome.reason = (
            f"{num_episodes:,} episodes had a {what} of {mean:.2f}, but {check.env} under the "
            f"{check.agent} policy has one of {expected}"
        )
