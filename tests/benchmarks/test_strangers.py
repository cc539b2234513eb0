"""Environments as other people write them, in a rollout and in loops of one's own."""

import csv

import pytest

from benchmarks.opponents.strangers import ENVS
from benchmarks.strangers import main
from myriad import check_env

pytestmark = pytest.mark.long


def test_each_loop_of_an_environment_is_measured(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    assert main(["--only", "call centre", "--num-envs", "8", "--output", str(path)]) == 0
    (row,) = csv.DictReader(path.read_text().splitlines())
    for loop in ("ours", "scalar", "own", "plain"):
        assert float(row[f"{loop}_per_processor_s"]) > 0
    assert "| Rollout / best of the others |" in capsys.readouterr().out


@pytest.mark.parametrize("name", ENVS)
def test_an_environment_has_no_fault(name):
    check_env(ENVS[name]())
