"""The worker's modules and the suite's own ones are not in each other's way."""

import pytest

SHADOWS = ("listing", "process", "profiling", "protocol", "suite", "worker")
NAMES = """import importlib.util

{imports}


def track_found():
    ours = ["serving", "first_run", "own_time", "counters"]
    return sum(importlib.util.find_spec(each) is not None for each in ours)
"""


@pytest.mark.slow
def test_neither_shadows_the_other_whatever_it_is_called(repository):
    for name in SHADOWS:
        repository.write(f"{name}.py", "OWN = True\n")
    imports = "\n".join(f"import {name}\nassert {name}.OWN" for name in SHADOWS)
    repository.write("benchmarks/names.py", NAMES.format(imports=imports))
    repository.commit()
    repository.write("smallsum/data.txt", "")
    (row,) = repository.count(0, "names").rows.values()
    assert (row["verdict"], row["changes"][0]["head"]) == ("same", 0.0)
