"""The laws of suite.toml: a side must step the environment that it says it steps, however fast it is."""

from dataclasses import replace

from benchmarks.harness.interleave import Contender, Outcome
from benchmarks.harness.workloads import Declaration, Law, library_of


def as_declared(contender: Contender, declaration: Declaration) -> Contender:
    """Tell a contender what suite.toml says of its environment."""
    law = declaration.law_of(contender.workload)
    returns = law is not None and law.statistic == "mean_episode_return"
    return replace(
        contender, twin=declaration.twin_of(contender.side, contender.workload), returns=returns
    )


def hold_to_law(outcome: Outcome, law: Law | None) -> None:
    """Fail an outcome whose episodes are not those that its environment and policy are known for.

    Where the law is waived for the library, the outcome says what it measured instead.
    """
    if law is None or outcome.status != "ok":
        return
    num_episodes, mean = outcome.stats["num_episodes"], outcome.stats[law.statistic]
    waiver = law.waived.get(library_of(outcome.contender.side))
    expected = f"{getattr(law, law.statistic):g} +/- {law.tolerance:g}"
    what = law.statistic.replace("_", " ")
    if waiver:
        measured = "" if mean is None else f" ({what} {mean:.2f} here, {expected} by the law)"
        outcome.reason = f"another environment: {waiver}{measured}"
    elif (
        num_episodes >= law.num_episodes
        and not abs(mean - getattr(law, law.statistic)) <= law.tolerance
    ):
        outcome.status = "failed"
        outcome.reason = (
            f"{num_episodes:,} episodes had a {what} of {mean:.2f}, but {law.env} under the {law.agent} policy has "
            f"one of {expected}"
        )
