"""perfgate in other people's repositories: their settings, layouts, tools and systems.

What it can't follow it names in the report. What it can't compare it refuses in one sentence.
"""

import json
import sys

import pytest

from gate_repository import make_repository
from perfgate.errors import UsageError
from perfgate.source.layout import import_roots


def settings(**changed):
    """Return the project's asv.conf.json with these changes."""
    table = {"version": 1, "repo": ".", "project": "smallsum", "benchmark_dir": "benchmarks"}
    return {"asv.conf.json": json.dumps(table | changed)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"benchmark_dir": "."}, "both sides would run head's code"),
        ({"benchmark_dir": "smallsum"}, "both sides would run head's code"),
        ({"benchmark_dir": "../other/project"}, "outside of the repository"),
        ({"repo": "../other/project"}, "another repository"),
    ],
)
def test_a_setting_that_can_not_be_followed_is_refused(repository, tmp_path, changed, said):
    other = make_repository(tmp_path / "other")
    repository.commit(settings(**changed))
    with pytest.raises(UsageError, match=said):
        repository.sides().__enter__()
    assert not other.git("status", "--porcelain")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"pythons": ["3.8", "3.9"]}, "pythons in asv.conf.json (3.8, 3.9): only Python 3"),
        ({"matrix": {"env": {"ROUNDS": ["1", "2"]}}}, "has 2 values of ROUNDS: only the first"),
        ({"environment_type": "conda", "exclude": [{}]}, "settings: environment_type, exclude."),
        ({"build_command": ["make parser"]}, "not follow these settings: build_command."),
        ({"pythons": ["{}.{}".format(*sys.version_info)]}, ""),
        ({"matrix": {"req": {"numpy": [""], "gone": [None]}}}, ""),
        ({"repo": "https://example.com/o/project.git"}, ""),
    ],
    ids=str,
)
def test_a_setting_that_is_not_followed_is_named(repository, changed, expected):
    repository.commit(settings(**changed))
    with repository.sides() as sides:
        assert len(sides.notes) == bool(expected)
        assert expected in "".join(sides.notes)


def test_the_first_environment_variables_of_the_matrix_are_set(repository, monkeypatch):
    monkeypatch.setenv("UNWANTED", "1")
    matrix = {"env": {"ROUNDS": ["7"], "UNWANTED": [None]}, "env_nobuild": {"TRIES": "3"}}
    variables = "environ['ROUNDS'] + environ['TRIES'] + environ.get('UNWANTED', '')"
    own = f"from os import environ\n\n\ndef track_variables():\n    return int({variables})\n"
    repository.commit(settings(matrix=matrix) | {"benchmarks/own.py": own})
    found = repository.gate(0, "--bench", "variables", "--time-identical")
    (change,) = found.rows["own.track_variables"]["changes"]
    assert change["head"] == 73


@pytest.mark.usefixtures("fake_uv")
def test_a_file_that_a_build_makes_is_shared_if_it_is_a_version_and_else_built(repository):
    repository.commit({".gitignore": ".asv/\n__pycache__/\n_version.py\n_table.py\n"})
    repository.write("smallsum/_version.py", "VERSION = 1\n")
    with repository.sides(head="main") as sides:
        for side in (sides.base, sides.head):
            assert (side.root / "smallsum/_version.py").is_file()
        assert sides.environments.startswith("one, shared")
        (note,) = sides.notes
        assert note.startswith("git ignores smallsum/_version.py; both sides used the one in")
    repository.write("smallsum/_table.py", "TABLE = 1\n")
    with repository.sides(head="main") as sides:
        assert "a build makes smallsum/_table.py, which git ignores" in sides.environments


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[tool.setuptools.packages.find]\nwhere = ["lib"]\n'),
        ("pyproject.toml", '[tool.setuptools.package-dir]\n"" = "lib"\n'),
        ("pyproject.toml", '[tool.poetry]\npackages = [{include = "smallsum", from = "lib"}]\n'),
        ("pyproject.toml", '[tool.maturin]\npython-source = "lib"\n'),
        ("pyproject.toml", '[tool.uv.build-backend]\nmodule-root = "lib"\n'),
        ("pyproject.toml", '[tool.hatch.build.targets.wheel]\npackages = ["lib/smallsum"]\n'),
        ("setup.cfg", "[options]\npackage_dir =\n    =lib\n"),
        ("setup.py", 'setup(package_dir={"": "lib"})\n'),
    ],
)
def test_a_package_is_imported_from_where_its_metadata_says(tmp_path, file, text):
    (tmp_path / "lib").mkdir()
    assert import_roots(tmp_path) == (tmp_path,)
    (tmp_path / file).write_text(text)
    assert import_roots(tmp_path) == (tmp_path / "lib", tmp_path)


@pytest.mark.slow
def test_a_module_that_can_not_be_imported_stops_no_other(repository):
    failing = "def track_nothing():\n    raise ValueError('it never worked')\n"
    repository.commit({"benchmarks/own.py": failing})
    repository.write("benchmarks/broken.py", "import nothing_like_it\n")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    found = repository.count(3, "track_(mean|nothing)")
    assert found.verdicts() == {
        "basics.track_mean": "same",
        "benchmarks.broken (module)": "could not measure",
        "own.track_nothing": "broken before",
    }
    assert "ModuleNotFoundError: No module named 'nothing_like_it'" in found.out
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 2", "REPEATS = 3")
    found = repository.count(0, "track_(mean|nothing)")
    assert found.out.startswith("# PASSED: no regression found, 2 broken on the base too; 3 bench")
    assert found.verdicts()["benchmarks.broken (module)"] == "broken before"
    assert "ValueError: it never worked" in found.out
    found = repository.count(3, "track_nothing")
    assert found.out.startswith("# COULD NOT TELL: nothing was measured, 2 broken on the base too")


@pytest.mark.slow
def test_a_benchmark_that_is_new_gone_or_broken_by_the_change_costs_no_other(repository):
    own = "def helper(value):\n    return value\n\n\ndef track_own():\n    return helper(1)\n"
    repository.commit({"benchmarks/own.py": own})
    repository.replace("benchmarks/own.py", "return value", "raise ValueError('new')")
    repository.write("smallsum/extra.py", "def new():\n    return 1\n")
    suite = "benchmarks/basics.py"
    repository.replace(suite, "import smallsum\n", "import smallsum\nfrom smallsum import extra\n")
    new = "def track_new():\n    return extra.new()\n\n\ndef track_mean"
    repository.replace(suite, "def track_mean", new)
    repository.replace(suite, "return len(path", "return 1 + len(path")
    repository.replace(suite, "def mem_table", "def mem_other")
    found = repository.count(3, "track|^basics.mem")
    assert found.verdicts() == {
        "basics.Cached.track_note": "could not measure",
        "basics.mem_other": "new",
        "basics.mem_table": "gone",
        "basics.track_mean": "same",
        "basics.track_new": "new",
        "own.track_own": "could not measure",
    }
    assert "| `basics.track_new` | new | 1 unit, on head alone |" in found.out
    (reason,) = found.rows["basics.Cached.track_note"]["reasons"]
    assert "its code changed, and the base can't import its module" in reason
    assert "ImportError: cannot import name 'extra'" in reason
