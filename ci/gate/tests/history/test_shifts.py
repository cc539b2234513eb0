"""A machine's movement is never named; what code or a dependency did is, with its own ratio."""

import json
from pathlib import Path

import numpy as np
import pytest

from made_up_results import commit_files, write_asv
from perfgate.history.asv_results import read_archive
from perfgate.history.benchmark_history import histories, main

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


class Measured:
    """What `perfgate history` says of a repository with one special commit."""

    def __init__(self, root: Path, series: dict[str, np.ndarray], file: str, at: int = AT):
        files = [file if place == at else CODE for place in range(NUM_COMMITS)]
        self.commits = commit_files(root, files)
        self.folder = root / "results"
        write_asv(self.folder, series, commits=self.commits)

    def named(self, capsys) -> dict[str, tuple[int, float]]:
        """Return the place and the ratio of each benchmark that is named, which is named once."""
        assert main(["--results", str(self.folder), "--json"]) == 0
        out, self.err = capsys.readouterr()
        found = json.loads(out)
        names = [row["benchmark"] for row in found]
        assert len(names) == len(set(names))
        return {
            row["benchmark"]: (self.commits.index(row["commit"]), row["ratio"]) for row in found
        }


@pytest.fixture(autouse=True)
def where_no_configuration_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("file", "ratio"), [(PAGE, 1.3), (".github/workflows/ci.yml", 0.7), ("a/tests/test_b.py", 1.3)]
)
def test_a_machine_that_changes_where_no_code_does_is_not_named(tmp_path, capsys, file, ratio):
    measured = Measured(tmp_path / "it", rows(10, AT, ratio), file)
    assert measured.named(capsys) == {}
    assert f"10 benchmarks moved together to {ratio}" in measured.err
    assert f"at {measured.commits[AT][:10]}, which can't have moved them" in measured.err


@pytest.mark.parametrize(("place", "ratio"), [(LATER, 1.2), (AT - 2, 1.2), (AT + 2, 0.8)])
def test_a_change_of_one_row_has_its_own_ratio_beside_the_machines(tmp_path, capsys, ratio, place):
    series = rows(10, AT, 1.3)
    series["suite.time_03"][place:] *= ratio
    found = Measured(tmp_path / "it", series, PAGE).named(capsys)
    assert found == {"suite.time_03": (place, pytest.approx(ratio, rel=0.015))}


def test_a_slowdown_stays_open_on_another_machine_and_each_has_its_level(tmp_path):
    series = rows(10, AT, 1.3)
    series["suite.time_03"][15:] *= 1.2
    archive = read_archive(Measured(tmp_path / "it", series, PAGE).folder)
    slow = histories(archive)[0][3]
    (still_open,) = slow.open
    assert still_open.ratio.middle == pytest.approx(1.2, rel=0.015)
    middles = [segment.middle / 4 for segment in slow.stretches[0].segments]
    assert middles == pytest.approx([1.0, 1.2, 1.2 * 1.3], rel=0.015)


@pytest.mark.parametrize("file", [CODE, "pyproject.toml", "ci/requirements-dev.txt", "uv.lock"])
def test_code_or_a_dependency_is_named_even_if_all_rows_move(tmp_path, capsys, file):
    found = Measured(tmp_path / "it", rows(10, AT, 1.3), file).named(capsys)
    assert len(found) == 10
    assert {place for place, _ in found.values()} == {AT}


def test_of_few_rows_nothing_is_taken_out(tmp_path, capsys):
    series = rows(5, AT, 1.3)
    series["suite.time_03"][LATER:] *= 1.2
    at_page = Measured(tmp_path / "page", series, PAGE)
    assert at_page.named(capsys) == {"suite.time_03": (LATER, pytest.approx(1.2, rel=0.015))}
    assert "moved together" not in at_page.err


@pytest.mark.parametrize("unmoved", [0, 1])
def test_what_moves_all_seconds_and_all_bytes_is_no_benchmarks_change(tmp_path, capsys, unmoved):
    series = rows(6, AT, 1.3)
    elsewhere = rows(6, LATER, 1.3)
    for row in range(6):
        values = series.pop(f"suite.time_{row:02}")
        if row < unmoved:
            values = elsewhere["suite.time_00"]
        series[f"suite.{'track' if row % 2 else 'time'}_{row:02}"] = values
    measured = Measured(tmp_path / "it", series, CODE)
    assert len(measured.named(capsys)) == (6 if unmoved else 0)
    sentence = f"All 6 benchmarks that ever moved did so at {measured.commits[AT][:10]}"
    assert (sentence in measured.err) == (not unmoved)
