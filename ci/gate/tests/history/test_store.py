"""Results on a branch of their own, in a local bare repository."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.history import store

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parents[1]


@pytest.fixture
def remote(tmp_path):
    path = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", path], check=True)
    return path


def run(do, results, remote, *options):
    """Run the command as the workflow's step does: with Python alone, and no identity of git's."""
    environment = os.environ | {
        "PYTHONPATH": str(PACKAGE),
        "HOME": str(results.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    # -S leaves out all that is installed.
    command = [sys.executable, "-S", "-m", "perfgate", "store", do, "--results", str(results)]
    command += ["--remote", str(remote), *options]
    return subprocess.run(
        command,
        cwd=results.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def git(remote, *arguments):
    done = subprocess.run(
        ["git", *arguments], cwd=remote, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write(results, name, text="{}"):
    (results / name).parent.mkdir(parents=True, exist_ok=True)
    (results / name).write_text(text)


def test_results_are_added_and_never_changed(tmp_path, remote):
    results = tmp_path / "one" / "asv"
    write(results, "m/1234abcd-py.json", '{"value": 1}')
    write(results, "benchmarks.json", '{"version": 1}')
    done = run("push", results, remote)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pushed 2 files to benchmark-results\n"
    write(results, "m/1234abcd-py.json", '{"value": 2}')
    write(results, "m/5678abcd-py.json", '{"value": 3}')
    write(results, "benchmarks.json", '{"version": 2}')
    assert run("push", results, remote).stdout == "pushed 2 files to benchmark-results\n"
    assert git(remote, "show", "benchmark-results:m/1234abcd-py.json") == '{"value": 1}'
    assert git(remote, "show", "benchmark-results:benchmarks.json") == '{"version": 2}'
    assert git(remote, "rev-list", "--count", "benchmark-results") == "2"
    assert run("push", results, remote).stdout == "benchmark-results already has every file\n"


def test_tables_go_to_a_branch_of_their_own_and_a_named_file_follows_the_newest_run(
    tmp_path, remote
):
    results = tmp_path / "one" / "csv"
    options = ("--branch", "benchmark-rows", "--rewrite", "parts/*.json")
    for outcome in ("1", "2"):
        write(results, "throughput.csv", f"rate\n{outcome}\n")
        write(results, "state.json", outcome)
        write(results, "parts/history.json", outcome)
        assert run("push", results, remote, *options).returncode == 0
    names = ("throughput.csv", "state.json", "parts/history.json")
    stored = [git(remote, "show", f"benchmark-rows:{name}") for name in names]
    assert stored == ["rate\n1", "1", "2"]
    assert git(remote, "branch", "--list", "benchmark-results") == ""


def test_another_machine_fetches_what_was_stored(tmp_path, remote):
    results, elsewhere = tmp_path / "one" / "asv", tmp_path / "two" / "asv"
    (tmp_path / "one").mkdir()
    nothing = run("fetch", results, remote)
    assert nothing.stdout == "copied 0 files from benchmark-results\n"
    write(results, "m/1234abcd-py.json", '{"value": 1}')
    write(results, "notes.txt", "not of asv's making")
    assert run("push", results, remote).returncode == 0
    write(elsewhere, "n/1234abcd-py.json")
    assert run("fetch", elsewhere, remote).stdout == "copied 1 files from benchmark-results\n"
    assert {path.name for path in elsewhere.rglob("*") if path.is_file()} == {"1234abcd-py.json"}
    assert (elsewhere / "m" / "1234abcd-py.json").read_text() == '{"value": 1}'


def test_a_push_that_another_run_overtook_is_done_again(tmp_path, remote, monkeypatch):
    mine, others = tmp_path / "one" / "asv", tmp_path / "two" / "asv"
    write(mine, "m/1234abcd-py.json")
    write(others, "n/1234abcd-py.json")
    real, overtaken = store.git, []

    def overtake(*arguments, cwd):
        if arguments[0] == "push" and not overtaken:
            overtaken.append(run("push", others, remote))
        return real(*arguments, cwd=cwd)

    monkeypatch.setattr(store, "git", overtake)
    assert store.push(mine, str(remote), store.BRANCH) == "pushed 1 files to benchmark-results"
    stored = git(remote, "ls-tree", "-r", "--name-only", "benchmark-results").split()
    assert stored == ["m/1234abcd-py.json", "n/1234abcd-py.json"]


def test_a_large_file_is_refused_and_a_missing_folder_is_nothing_to_push(tmp_path, remote):
    (tmp_path / "one").mkdir()
    done = run("push", tmp_path / "one" / "asv", remote)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to push" in done.stdout
    write(tmp_path / "one" / "asv", "m/big.json", " " * 3_000_000)
    done = run("push", tmp_path / "one" / "asv", remote)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "m/big.json has 3,000,000 bytes" in done.stderr


def test_the_token_reaches_git_alone_and_only_its_own_remote(monkeypatch):
    for name in ("COUNT", "KEY_0", "VALUE_0"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", "")
    monkeypatch.setenv("STORE_TOKEN", "word")
    store._authorise("https://example.org/o/r")
    assert "STORE_TOKEN" not in os.environ
    assert os.environ["GIT_CONFIG_KEY_0"] == "http.https://example.org/o/r.extraheader"
    assert base64.b64decode(os.environ["GIT_CONFIG_VALUE_0"].split()[-1]) == b"x-access-token:word"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(None, "run HEAD^!"), ("0000000", "run NEW"), ("HEAD", "is measured already")],
    ids=["nothing", "an older commit", "the newest commit"],
)
def test_only_what_is_not_stored_yet_is_measured(tmp_path, stored, expected):
    project = tmp_path / "a project"
    write(project, "ci/record.sh", (ROOT / "ci" / "record.sh").read_text())
    write(project, "Makefile", ".venv/bench.stamp:\n\t@true\n")
    write(project, ".venv/bin/python", '#!/bin/sh\necho "$@"\n')
    (project / ".venv" / "bin" / "python").chmod(0o755)
    git(project, "init", "--quiet")
    git(project, *store._IDENTITY, "commit", "--quiet", "--allow-empty", "--message", "start")
    if stored:
        commit = git(project, "rev-parse", "HEAD") if stored == "HEAD" else stored + "0"
        write(project, f"results/asv/m/{commit[:8]}-py.json")
    environment = os.environ | {"ASV_MACHINE": "m"}
    done = subprocess.run(
        ["bash", "ci/record.sh"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert ("-m asv run" in done.stdout) == (stored != "HEAD")
