import math

import pytest

from benchmarks.harness.interleave import Case, Outcome
from benchmarks.harness.sanity import as_declared, check_sanity
from benchmarks.harness.workloads import SanityCheck, Workload, load

TINY = Workload("throughput", "tiny", "cartpole-control", "random", 256, 32, ("quick",), ("cpu",))
OF_LENGTH = SanityCheck("cartpole-control", "random", 0.5, 10_000, mean_episode_length=22.2)
OF_RETURN = SanityCheck(
    "cartpole-control", "random", 15, 10_000, mean_episode_return=-1228, waived={"jumanji": "a toy"}
)


def outcome(side="myriad", num_episodes=10_000, mean_length=22.2, mean_return=-1228.0):
    means = {"mean_episode_length": mean_length, "mean_episode_return": mean_return}
    return Outcome(Case(side, TINY), stats={"num_episodes": num_episodes} | means)


@pytest.mark.parametrize(
    ("mean", "num_episodes", "status"),
    [(22.4, 10_000, "ok"), (30.0, 10_000, "failed"), (30.0, 9, "ok")],
)
def test_a_side_whose_episodes_have_the_wrong_length_fails(mean, num_episodes, status):
    measured = outcome(mean_length=mean, num_episodes=num_episodes)
    check_sanity(measured, OF_LENGTH)
    assert measured.status == status


@pytest.mark.parametrize(
    ("mean", "status"), [(-1235.0, "ok"), (-1200.0, "failed"), (math.nan, "failed")]
)
def test_a_side_whose_episodes_have_the_wrong_return_fails(mean, status):
    measured = outcome(mean_return=mean)
    check_sanity(measured, OF_RETURN)
    assert measured.status == status


@pytest.mark.parametrize("mean", [-1228.0, -900.0])
def test_a_library_whose_sanity_check_is_waived_is_marked_in_words_whatever_it_measured(mean):
    measured = outcome(side="jumanji", mean_return=mean)
    check_sanity(measured, OF_RETURN)
    assert measured.status == "ok"
    assert "another environment: a toy" in measured.reason
    assert f"{mean:.2f}" in measured.reason


def test_a_waiver_holds_for_its_library_alone():
    measured = outcome(side="gymnax", mean_return=-900.0)
    check_sanity(measured, OF_RETURN)
    assert measured.status == "failed"


def test_an_outcome_that_failed_keeps_its_reason():
    measured = outcome(mean_return=-900.0)
    measured.status, measured.reason = "failed", "no memory"
    check_sanity(measured, OF_RETURN)
    assert measured.reason == "no memory"


def test_a_case_is_told_its_librarys_name_for_the_environment_and_whether_returns_are_needed():
    declaration = load()
    workloads = declaration.workloads["throughput"]
    told = {
        (side, name): as_declared(Case(side, workloads[name]), declaration)
        for side, name in [
            ("gymnax-configured", "pendulum-1k"),
            ("myriad", "cartpole-1k"),
            ("jumanji", "cartpole-1k"),
        ]
    }
    assert [(each.env_id, each.returns) for each in told.values()] == [
        ("Pendulum-v1", True),
        ("", False),
        ("", False),
    ]
