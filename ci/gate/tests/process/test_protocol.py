"""The worker's modules and the suite's own ones are not in each other's way."""

import pytest

from gate_repository import make_repository

SHADOWS = ("calls", "listing", "process", "protocol", "suite", "worker")


@pytest.mark.slow
def test_a_suites_own_modules_and_the_workers_do_not_meet(tmp_path):
    """Neither shadows the other, whatever it is called."""
    repository = make_repository(tmp_path)
    for name in SHADOWS:
        repository.write(f"{name}.py", "OWN = True\n")
    imports = "\n".join(f"import {name}\nassert {name}.OWN" for name in SHADOWS)
    ours = "['serving', 'first_run', 'own_time', 'counters']"
    repository.write(
        "benchmarks/names.py",
        f"import importlib.util\n{imports}\n\n\n"
        f"def track_found():\n"
        f"    return sum(importlib.util.find_spec(each) is not None for each in {ours})\n",
    )
    repository.commit()
    repository.write("smallsum/data.txt", "")
    run = repository.gate("--base", "main", "--bench", "names", "--no-timing")
    (row,) = run.rows.values()
    assert (row["verdict"], row["changes"][0]["head"]) == ("same", 0.0)
