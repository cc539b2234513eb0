"""A machine's movement is never named; what code or a dependency did is, with its own ratio."""

import json

import numpy as np
import pytest

from made_up_results import commit_files, write_asv
from perfgate.history.benchmark_history import main

NUM_COMMITS = 60
AT = 30  # where the machine changes
LATER = 45
CODE = "package/core.py"
PAGE = "docs/page.rst"


def rows(num_rows: int, at: int, ratio: float) -> dict[str, np.ndarray]:
    """Return noisy benchmarks that all move at a commit, each on its own scale."""
    rng = np.random.default_rng(num_rows)
    levels = np.where(np.arange(NUM_COMMITS) < at, 1.0, ratio)
    noise = 1 + 0.015 * rng.standard_normal((num_rows, NUM_COMMITS))
    return {f"suite.time_{row:02}": (row + 1) * levels * noise[row] for row in range(num_rows)}


@pytest.fixture
def named(tmp_path, monkeypatch, capsys):
    """Return the place and the ratio of each benchmark that is named, and what is said of all."""
    monkeypatch.chdir(tmp_path)  # where no configuration is

    def named(series, file):
        files = [file if place == AT else CODE for place in range(NUM_COMMITS)]
        commits = commit_files(tmp_path / "it", files)
        write_asv(tmp_path / "it" / "results", series, commits=commits)
        assert main(["--results", "it/results", "--json"]) == 0
        out, err = capsys.readouterr()
        rows = json.loads(out)
        found = {row["benchmark"]: (commits.index(row["commit"]), row["ratio"]) for row in rows}
        assert len(found) == len(rows)  # each is named once
        return found, err.replace(commits[AT][:10], "the commit")

    return named


@pytest.mark.parametrize(
    ("file", "ratio", "is_named"),
    [
        (PAGE, 1.3, False),
        (".github/workflows/ci.yml", 0.7, False),
        (CODE, 1.3, True),
        ("uv.lock", 1.3, True),
    ],
)
def test_what_moves_all_rows_is_named_only_if_code_or_a_dependency_did(
    named, file, ratio, is_named
):
    found, said = named(rows(10, AT, ratio), file)
    assert len(found) == (10 if is_named else 0)
    assert {place for place, _ in found.values()} <= {AT}
    assert ("10 benchmarks moved together" in said) is not is_named
    assert ("at the commit, which can't have moved them" in said) is not is_named


@pytest.mark.parametrize(
    ("num_rows", "place", "ratio"),
    [(10, AT - 2, 1.2), (10, AT + 2, 0.8), (5, LATER, 1.2)],
)
def test_a_change_of_one_row_has_its_own_ratio_beside_the_machines(named, num_rows, ratio, place):
    series = rows(num_rows, AT, 1.3)
    series["suite.time_03"][place:] *= ratio
    found, said = named(series, PAGE)
    assert found == {"suite.time_03": (place, pytest.approx(ratio, rel=0.015))}
    assert ("moved together" in said) == (num_rows == 10)  # of few rows nothing is taken out
