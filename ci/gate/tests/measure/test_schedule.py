"""Which rows are timed where there is no time for all of them, and how a run is spread."""

import pytest

from gate_repository import make_repository
from perfgate.measure.schedule import Prospect, affordable
from perfgate.options import Shard

ROWS = [Prospect("calm", -0.1, 1.0), Prospect("even", 0.0, 1.0), Prospect("odd", 0.3, 2.0)]


@pytest.mark.parametrize(
    ("left_s", "names"),
    [
        (1000.0, {"calm", "even", "odd"}),
        (31.0, {"even", "odd"}),
        (21.0, {"odd"}),
        (0.1, {"odd"}),  # a last pair may still be what it takes
    ],
)
def test_the_most_suspicious_rows_are_timed_first(left_s, names):
    assert affordable(ROWS, left_s) == names


def test_what_needs_few_more_pairs_leaves_time_for_others():
    nearly = [Prospect("odd", 0.3, 2.0, num_pairs=8), *ROWS[:2]]
    assert affordable(nearly, 15.0) == {"odd", "even"}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_share_all_rows_among_them(count):
    names = [f"row {number}" for number in range(5)]
    shares = [Shard(number, count).take(names) for number in range(1, count + 1)]
    assert sorted(name for share in shares for name in share) == names
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.slow
def test_a_shard_runs_its_part_and_budgets_of_others_are_theirs(tmp_path):
    repository = make_repository(tmp_path)
    repository.write("smallsum/unused.py", "")
    runs = [
        repository.gate("--base", "main", "--bench", "track|absent", "--shard", f"{number}/2")
        for number in (1, 2)
    ]
    assert [run.code for run in runs] == [0, 0]
    assert repository.perfgate("--base", "main", "--shard", "3/2").returncode == 2
    empty = repository.perfgate("--base", "main", "--bench", "track_mean", "--shard", "2/2")
    assert empty.returncode == 2
    assert "--shard 2/2 holds no benchmark: there are 1 in all." in empty.stderr
