"""Recorded pairs through the gate's decisions: their verdicts stay what they were.

Each line of fixtures/recorded_pairs.csv is a series of log ratios of pairs, in units of 1e-5, as
the gate's self-test recorded them, and the verdicts that followed:

    itself    a tree against itself; the pairs of each of its runs, one verdict each
    planted   a planted slowdown; 80 pairs in a ring, read from every fourth on, one verdict each

A verdict is its word's first letter (s: slower, n: not slower, f: faster, u: undecided) and how
many pairs it took.
"""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate.config import Rules
from perfgate.rows import Benchmark, Row
from perfgate.stats.evidence import Evidence, Plan
from perfgate.verdict import judge

RECORDED = Path(__file__).parents[1] / "fixtures" / "recorded_pairs.csv"
RULES = Rules()
EVERY = 4  # of a ring's pairs begins a replay
NUM_ROWS = 5  # that share the error allowed, as in the runs that were recorded


def judged(pairs):
    """Return the letter of the verdict on so many pairs at most, and how many were looked at."""
    row = Row(Benchmark("suite.time_it", "suite.time_it", None, "time", 60.0))
    evidence = Evidence(Plan.make(RULES.limits_of(row.name), NUM_ROWS))
    for pair in pairs:
        if evidence.done:
            break
        evidence.add(pair)
    evidence.end()
    verdict = judge(replace(row, evidence=evidence), RULES, timing=True).verdict
    return f"{verdict[0]}{evidence.num_pairs}"


def replayed(kind, runs):
    """Return the verdicts on each run's pairs, or on those of a ring read from every fourth on."""
    if kind == "itself":
        return [judged(run) for run in runs]
    (ring,) = runs
    return [judged([*ring[start:], *ring[:start]]) for start in range(0, len(ring), EVERY)]


def recorded():
    """Return what the file holds: kind, benchmark, runs of log ratios, verdicts."""
    with RECORDED.open(newline="", encoding="utf-8") as file:
        return [
            (
                line["kind"],
                line["benchmark"],
                [[int(each) * 1e-5 for each in run.split()] for run in line["pairs"].split(";")],
                line["verdicts"].split(),
            )
            for line in csv.DictReader(file)
        ]


SERIES = recorded()


@pytest.mark.parametrize(
    ("kind", "runs", "verdicts"),
    [(kind, runs, verdicts) for kind, _, runs, verdicts in SERIES],
    ids=[f"{kind} {benchmark}" for kind, benchmark, _, _ in SERIES],
)
def test_recorded_pairs_get_the_verdicts_that_they_got(kind, runs, verdicts):
    assert replayed(kind, runs) == verdicts


def test_the_recorded_pairs_reach_every_verdict_that_pairs_can():
    words = {verdict[0] for _, _, _, verdicts in SERIES for verdict in verdicts}
    assert words == {"s", "n", "u", "f"}
