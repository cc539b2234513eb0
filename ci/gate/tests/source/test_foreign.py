"""perfgate in other people's repositories: their settings, layouts, tools and systems.

What it can't follow it names in the report. What it can't compare it refuses in one sentence.
"""

import json
import os
import subprocess
import sys

import pytest

from gate_repository import LAST_RESORT_S, PROJECT, ROOT, make_repository
from perfgate.errors import UsageError
from perfgate.source.git import WORKING_TREE
from perfgate.source.layout import import_roots
from perfgate.source.sides import checked_out

MACOS = PROJECT.with_name("macos")


def settings(repository, **changed):
    """Change the project's asv.conf.json."""
    table = {"version": 1, "repo": ".", "project": "smallsum", "benchmark_dir": "benchmarks"}
    repository.write("asv.conf.json", json.dumps(table | changed))


def notes_of(repository, head=WORKING_TREE):
    with checked_out(repository.root / "asv.conf.json", "main", head) as sides:
        return sides.notes


def test_a_lock_of_uv_holds_the_versions_where_uv_is_there(repository, fake_uv):
    repository.write("uv.lock", "version = 1\n")
    with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
        assert sides.environments == "one for each side: uv.lock changed"
    commands = fake_uv.read_text().splitlines()
    assert commands[-2].startswith("export --quiet --frozen")
    assert "--constraint" in commands[-1]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "smallsum", "benchmarks/.."])
def test_a_suite_that_holds_the_package_is_refused(repository, folder):
    settings(repository, benchmark_dir=folder)
    with pytest.raises(UsageError, match=r"benchmark_dir .* both sides would run head's code"):
        notes_of(repository)


def test_a_suite_outside_of_the_repository_is_refused_and_left_alone(repository, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text("")
    settings(repository, benchmark_dir="../elsewhere")
    with pytest.raises(UsageError, match="outside of the repository"):
        notes_of(repository)
    assert (tmp_path / "elsewhere" / "mine.py").is_file()


@pytest.mark.slow
def test_a_suite_may_lie_beside_its_own_configuration(repository):
    repository.git("mv", "asv.conf.json", "gate.toml", "benchmarks")
    table = {"repo": "..", "benchmark_dir": ".", "project": "smallsum"}
    repository.write("benchmarks/asv.conf.json", json.dumps(table))
    repository.commit()
    repository.replace("smallsum/__init__.py", "range(size)", "range(2 * size)")
    words = ("--suite-config", "benchmarks/asv.conf.json", "--no-timing", "--bench", "track_mean")
    run = repository.gate("--base", "main", *words)
    assert run.code == 1, run.out + run.err
    assert run.verdicts() == {"basics.track_mean": "worse"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"pythons": ["3.8", "3.9"]}, "pythons in asv.conf.json (3.8, 3.9): only Python 3"),
        (
            {"matrix": {"env": {"ROUNDS": ["1", "2"]}}},
            "matrix in asv.conf.json has 2 values of ROUNDS: only the first was used.",
        ),
        (
            {"environment_type": "conda", "exclude": [{"python": "3.9"}]},
            "The gate does not follow these settings: environment_type, exclude.",
        ),
        ({"build_command": ["make parser"]}, "not follow these settings: build_command."),
        ({"pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"]}, ""),
        ({"matrix": {"req": {"numpy": [""], "gone": [None]}}}, ""),
        ({"repo": "https://example.com/o/project.git"}, ""),
    ],
    ids=str,
)
def test_a_setting_that_is_not_followed_is_named(repository, changed, expected):
    settings(repository, **changed)
    repository.commit()
    notes = notes_of(repository)
    assert len(notes) == bool(expected)
    assert expected in "".join(notes)


def test_another_repository_as_asvs_repo_is_refused(repository, tmp_path):
    other = make_repository(tmp_path / "other")
    settings(repository, repo=str(other.root))
    with pytest.raises(UsageError, match="another repository"):
        notes_of(repository)


def test_the_first_environment_variables_of_the_matrix_are_set(repository, monkeypatch):
    monkeypatch.setenv("UNWANTED", "1")
    matrix = {"env": {"ROUNDS": ["7"], "UNWANTED": [None]}, "env_nobuild": {"TRIES": "3"}}
    settings(repository, matrix=matrix)
    repository.write(
        "benchmarks/own.py",
        "from os import environ\n\n\ndef track_variables():\n"
        "    return int(environ['ROUNDS'] + environ['TRIES'] + environ.get('UNWANTED', ''))\n",
    )
    repository.commit()
    run = repository.gate("--base", "main", "--bench", "variables", "--time-identical")
    assert run.code == 0, run.out + run.err
    (change,) = run.rows["own.track_variables"]["changes"]
    assert change["head"] == 73


@pytest.mark.parametrize(
    ("name", "built", "note"),
    [
        (
            "requirements/test.txt",
            False,
            "requirements/test.txt changed, but the gate did not follow it",
        ),
        ("poetry.lock", False, "poetry.lock changed, but the gate did not follow it"),
        ("requirements/base.txt", True, ""),
        ("requirements.txt", True, ""),
    ],
)
@pytest.mark.usefixtures("fake_uv")
def test_a_file_of_versions_is_installed_or_named(repository, name, built, note):
    repository.write("setup.py", "REQUIREMENTS = 'requirements/base.txt'\n")
    repository.commit()
    repository.write(name, "numpy>=1\n")
    with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
        assert (f"{name} changed" in sides.environments) is built
        assert [each.startswith(note) for each in sides.notes] == [True] * bool(note)


@pytest.mark.usefixtures("fake_uv")
def test_a_file_that_a_build_makes_is_shared_if_it_is_a_version_and_else_built(repository):
    repository.write(".gitignore", ".asv/\n__pycache__/\n_version.py\n_table.py\n")
    repository.commit()
    repository.write("smallsum/_version.py", "VERSION = 1\n")
    with checked_out(repository.root / "asv.conf.json", "main", "main") as sides:
        for side in (sides.base, sides.head):
            assert (side.root / "smallsum/_version.py").is_file()
        assert sides.environments.startswith("one, shared")
        (note,) = sides.notes
        assert note.startswith("git ignores smallsum/_version.py; both sides used the one in")
    repository.write("smallsum/_table.py", "TABLE = 1\n")
    with checked_out(repository.root / "asv.conf.json", "main", "main") as sides:
        assert "a build makes smallsum/_table.py, which git ignores" in sides.environments


def test_a_build_may_ask_git_for_the_version_of_the_working_tree(repository):
    repository.git("tag", "v1.0")
    repository.write("new.txt", "")
    with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
        words = ["git", "-C", str(sides.head.root), "describe", "--tags"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "v1.0"
        words[3:] = ["status", "--porcelain"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["??", "new.txt"]


def test_what_the_gate_and_an_installation_write_is_no_change_of_the_code(repository):
    for name in ("accepted.toml", "ci/gate.toml", "smallsum.egg-info/x"):
        repository.write(name, "")
    with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
        assert not sides.changed_code


def test_a_report_is_no_part_of_the_next_runs_head(repository):
    repository.write(".gitignore", "__pycache__/\n")
    repository.commit()
    run = repository.gate("--base", "main", "--bench", "track_mean", "--no-timing")
    assert run.code == 0, run.err
    assert repository.git("status", "--porcelain") == ""


# --- layouts --------------------------------------------------------------------------------------


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


# --- suites ---------------------------------------------------------------------------------------

BROKEN = "import nothing_like_it\n\n\ndef track_never():\n    return 1\n"
FAILING = "def track_nothing():\n    raise ValueError('it never worked')\n"


@pytest.mark.slow
def test_a_module_that_can_not_be_imported_stops_no_other(repository):
    repository.write("benchmarks/own.py", FAILING)
    repository.commit()
    repository.write("benchmarks/broken.py", BROKEN)
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    fast = ("--base", "main", "--bench", "track_(mean|nothing)", "--no-timing")
    run = repository.gate(*fast)
    assert run.code == 3, run.out + run.err
    assert run.verdicts() == {
        "basics.track_mean": "same",
        "benchmarks.broken (module)": "could not measure",
        "own.track_nothing": "broken before",
    }
    assert "ModuleNotFoundError: No module named 'nothing_like_it'" in run.out
    repository.commit("break it for everybody")
    repository.replace("smallsum/__init__.py", "REPEATS = 2", "REPEATS = 3")
    run = repository.gate(*fast)
    assert run.code == 0, run.out + run.err
    assert run.out.startswith("# PASSED: no regression found, 2 broken on the base too; 3 bench")
    assert run.verdicts()["benchmarks.broken (module)"] == "broken before"
    assert "ValueError: it never worked" in run.out
    assert "nothing_like_it" in run.out
    run = repository.gate("--base", "main", "--bench", "track_nothing", "--no-timing")
    assert run.code == 3
    assert run.out.startswith("# COULD NOT TELL: nothing was measured, 2 broken on the base too")


@pytest.mark.slow
def test_a_benchmark_that_the_change_breaks_is_not_taken_for_an_old_fault(repository):
    helper = "def helper(value):\n    return value\n\n\n"
    repository.write("benchmarks/own.py", f"{helper}def track_own():\n    return helper(1)\n")
    repository.commit()
    repository.replace("benchmarks/own.py", "return value", "raise ValueError('new')")
    run = repository.gate("--base", "main", "--bench", "track_(mean|own)", "--no-timing")
    assert run.code == 3, run.out + run.err
    assert run.verdicts() == {
        "basics.track_mean": "same code",
        "own.track_own": "could not measure",
    }


@pytest.mark.slow
def test_a_benchmark_of_something_new_leaves_those_of_its_module_comparable(repository):
    repository.write("smallsum/extra.py", "def new():\n    return 1\n")
    repository.replace(
        "benchmarks/basics.py", "import smallsum\n", "import smallsum\nfrom smallsum import extra\n"
    )
    repository.replace(
        "benchmarks/basics.py",
        "def track_mean",
        "def track_new():\n    return extra.new()\n\n\ndef track_mean",
    )
    repository.replace("benchmarks/basics.py", "return len(path", "return 1 + len(path")
    run = repository.gate("--base", "main", "--bench", "track", "--no-timing")
    assert run.verdicts() == {
        "basics.Cached.track_note": "could not measure",
        "basics.track_mean": "same",
        "basics.track_new": "new",
    }
    (reason,) = run.rows["basics.Cached.track_note"]["reasons"]
    assert "its code changed, and the base can't import its module" in reason
    assert "ImportError: cannot import name 'extra'" in reason


# --- systems --------------------------------------------------------------------------------------


def test_windows_is_refused_in_one_sentence():
    lines = (
        # The standard library needs Windows where it believes to be there.
        "import importlib.metadata, os, shutil, signal, sys\n"
        "sys.platform = 'win32'\n"
        "del signal.SIGHUP, os.sched_setaffinity, os.killpg\n"
        "from perfgate.cli import main\n"
        "sys.exit(main(['accept', 'a']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == "perfgate needs Linux or macOS; on Windows, run it in WSL.\n"


@pytest.mark.slow
def test_the_gate_runs_without_what_only_linux_has(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    words = ("--base", "main", "--bench", "cached|peakmem|track_mean")
    done = subprocess.run(
        [sys.executable, "-m", "perfgate", *words],
        cwd=repository.root,
        env=os.environ | {"PYTHONPATH": f"{MACOS}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Processes can't be pinned to a core here" in done.stdout
    assert "| `basics.Cached.time_cached` | slower" in done.stdout
    assert "| `basics.peakmem_table` | same" in done.stdout
