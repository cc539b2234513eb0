"""`perfgate find` on a real repository: what it visits, what it names, when it can't tell."""

import pytest

from gate_repository import RULES, UNCONFIRMED, make_repository

CACHED, TRACKED = "basics.Cached.time_cached", "basics.track_mean"


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path, UNCONFIRMED + RULES)


def find(repository, *arguments):
    """Run the command; nothing may be left behind."""
    done = repository.perfgate("find", *arguments)
    assert not list(repository.temporary.iterdir())
    assert len(repository.git("worktree", "list").splitlines()) == 1
    return done


def commit_line(repository, guilty, change):
    """Make eight commits: two of pages, `change` as number `guilty`, and harmless ones."""
    made = []
    for number in range(1, 9):
        if number == guilty:
            change()
        elif number in (2, 6):
            repository.write("docs/page.md", f"page {number}\n")
        else:
            repository.write("smallsum/notes.py", f"NUMBER = {number}\n")
        made.append(repository.commit(f"change {number}"))
    return made


def visited(done):
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("visited")}


@pytest.mark.long
def test_a_worse_value_is_found_and_pages_are_not_visited(repository):
    start = repository.git("rev-parse", "HEAD")

    def plant():
        repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")

    made = commit_line(repository, 5, plant)
    done = find(repository, TRACKED, start, "main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found {made[4][:12]} change 5" in done.stdout
    assert "track: 3,284 -> 6,567 units (2 times), against" in done.stdout
    assert f"show it: git show {made[4][:12]}" in done.stdout
    assert "8 commits after" in done.stdout
    assert "6 can matter" in done.stdout
    assert not visited(done) & {made[1][:12], made[5][:12]}


@pytest.mark.slow
def test_a_slowdown_is_found_by_timing(repository):
    start = repository.git("rev-parse", "HEAD")
    made = commit_line(
        repository,
        4,
        lambda: repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 12"),
    )
    done = find(repository, CACHED, start, "main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found {made[3][:12]} change 4" in done.stdout
    assert f"visited {made[3][:12]} change 4: slower " in done.stdout
    # the first commits add a module that the benchmark does not use
    before = [f"visited {each[:12]}" for each in made[:3]]
    lines = [line for line in done.stdout.splitlines() if line.startswith(tuple(before))]
    assert lines
    assert all("the same code, not timed" in line for line in lines)


@pytest.mark.long
def test_a_benchmark_younger_than_the_slowdown_is_asked_of_every_commit(repository):
    start = repository.git("rev-parse", "HEAD")
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    guilty = repository.commit("double")
    repository.write(
        "benchmarks/young.py",
        "import smallsum\n\n\ndef track_sum():\n    return sum(smallsum.table(9))\n",
    )
    repository.commit("a new benchmark")
    done = find(repository, "young.track_sum", start, "main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found {guilty[:12]} double" in done.stdout


@pytest.mark.long
def test_commits_that_cannot_be_measured_leave_several_under_suspicion(repository):
    start = repository.git("rev-parse", "HEAD")
    repository.replace("smallsum/__init__.py", "[1.0 * number", "[(1.0 * number")
    broken = repository.commit("break it")
    repository.replace("smallsum/__init__.py", "[(1.0 * number", "[2.0 * number")
    repaired = repository.commit("repair it")
    done = find(repository, TRACKED, start, "main")
    assert done.returncode == 3
    assert f"it is one of {broken[:12]}, {repaired[:12]}" in done.stdout


@pytest.mark.long
def test_commits_that_do_not_differ_leave_nothing_to_find(repository):
    start = repository.git("rev-parse", "HEAD")
    repository.write("docs/page.md", "a page\n")
    page = repository.commit("a page")
    done = find(repository, TRACKED, start, page)
    assert (done.returncode, "touches only documentation or the suite" in done.stdout) == (3, True)
    repository.write("smallsum/notes.py", "")
    repository.commit("harmless")
    done = find(repository, TRACKED, start, "main")
    assert done.returncode == 3
    assert "BAD is not worse than GOOD in track" in done.stdout


@pytest.mark.long
def test_a_merge_is_named_as_a_whole(repository):
    start = repository.git("rev-parse", "HEAD")
    repository.git("switch", "--quiet", "--create", "topic")
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    repository.commit("double, on a branch")
    repository.git("switch", "--quiet", "main")
    repository.write("smallsum/notes.py", "")
    repository.commit("harmless")
    repository.git("merge", "--quiet", "--no-ff", "--message", "merge topic", "topic")
    merge = repository.git("rev-parse", "HEAD")
    repository.write("smallsum/notes.py", "NUMBER = 1\n")
    repository.commit("harmless again")
    done = find(repository, TRACKED, start, "main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found {merge[:12]} merge topic" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([TRACKED, "nowhere", "main"], "'nowhere' is not a commit"),
        ([TRACKED, "main", "main~1"], "is no ancestor of BAD"),
        ([TRACKED, "main", "main"], "are the same commit"),
        (["basics.track_meen", "main~1", "main"], "did you mean 'basics.track_mean'?"),
        ([TRACKED, "main~1", "main", "--metric", "trak"], "did you mean 'track'?"),
        ([TRACKED, "main~1", "main", "--suite-config", "absent.json"], "there is no absent.json"),
        ([TRACKED], "--help lists the flags"),
    ],
)
def test_wrong_usage_gets_one_sentence_and_exit_code_2(repository, arguments, expected):
    repository.write("smallsum/notes.py", "")
    repository.commit("harmless")
    done = find(repository, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert expected in done.stderr.splitlines()[-1]
