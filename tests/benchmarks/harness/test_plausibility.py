import math

import pytest

from benchmarks.harness.alternation import Outcome
from benchmarks.harness.plausibility import check_sanity
from benchmarks.harness.workload import Case, Workload
from benchmarks.harness.workloads import SanityCheck

TINY = Workload("throughput", "tiny", "cartpole-control", "random", 256, 32, ("quick",))
OF_LENGTH = SanityCheck("cartpole-control", "random", 0.5, 10_000, mean_episode_length=22.2)
OF_RETURN = SanityCheck(
    "cartpole-control", "random", 15, 10_000, mean_episode_return=-1228, waived={"jumanji": "a toy"}
)


@pytest.mark.parametrize(
    ("library", "check", "num_episodes", "length", "mean", "status"),
    [
        ("myriad", OF_LENGTH, 10_000, 22.4, 0.0, "ok"),
        ("myriad", OF_LENGTH, 10_000, 30.0, 0.0, "failed"),
        ("myriad", OF_LENGTH, 9, 30.0, 0.0, "ok"),
        ("myriad", OF_RETURN, 10_000, 1.0, -1235.0, "ok"),
        ("myriad", OF_RETURN, 10_000, 1.0, -1200.0, "failed"),
        ("myriad", OF_RETURN, 10_000, 1.0, math.nan, "failed"),
        ("gymnax", OF_RETURN, 10_000, 1.0, -900.0, "failed"),
        ("jumanji", OF_RETURN, 10_000, 1.0, -900.0, "ok"),  # its check is waived
    ],
)
def test_a_library_with_the_wrong_episodes_fails(
    library, check, num_episodes, length, mean, status
):
    means = {"mean_episode_length": length, "mean_episode_return": mean}
    measured = Outcome(Case(library, TINY), stats={"num_episodes": num_episodes} | means)
    check_sanity(measured, check)
    assert measured.status == status
    if library == "jumanji":
        assert "another environment: a toy" in measured.reason
    # What has failed before keeps its reason.
    measured.status, measured.reason = "failed", "no memory"
    check_sanity(measured, check)
    assert measured.reason == "no memory"
