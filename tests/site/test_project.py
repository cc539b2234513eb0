"""The site of another repository, and what a repository may declare."""

import os
import re
import tomllib

import numpy as np
import pytest
from published_results import BUILT, ROOT, build, read, write_runs

from ci.site.model import read_site
from ci.site.pages import PAGES
from ci.site.pages.changes import answer, bisect
from ci.site.project import read_project
from made_up_results import commit_files, history, write_asv
from perfgate.history.asv_results import read_archive
from perfgate.history.benchmark_history import histories
from tests.child_processes import run

CONFIG, LIBRARIES = "asv.conf.json", "benchmarks/libraries.toml"
# A library that is run in other ways has more names.
OURS = tomllib.loads((ROOT / LIBRARIES).read_text()).keys()
OUR_NAMES = re.compile(
    "|".join([*OURS, "cartpole", "pendulum", "snake", "bucket", "gene.circ"]), re.IGNORECASE
)


def test_the_site_of_another_repository_names_nothing_of_ours_and_a_limit_is_no_rival(tmp_path):
    config = '{"project": "treesort"}  // asv allows comments'
    loop = "[heapq]\n[loop]\nlabel = 'a bare loop'\nlimit = true"
    write_runs(tmp_path / "results" / "csv", loop=0.05)
    write_asv(tmp_path / "results" / "asv", history(3, 2, 40), workloads=("oak", "elm"))
    site = build(tmp_path, {CONFIG: config, LIBRARIES: f"[treesort]\nours = true\n{loop}"})
    index = read(site, "index.html")
    assert "<title>treesort, measured</title>" in index
    assert "<h1>treesort is 4.0 times as fast as heapq: forest, random actions, CPU.</h1>" in index
    assert "<code>python run.py</code>" in index  # the folder of the output is only the runner's
    assert index.count(">4.0\N{MULTIPLICATION SIGN}</a>") == 2
    assert index.count(">0.50\N{MULTIPLICATION SIGN}</a>") == 2
    assert index.index('scope="row">heapq') < index.index('scope="row">a bare loop')
    for path in site.rglob("*"):
        found = OUR_NAMES.search(path.name)
        if path.is_file():
            found = found or OUR_NAMES.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"


GUIDES = ("index", "environments", "gpu")
PUBLISHED = {
    LIBRARIES: "[treesort]\nours = true",
    "ci/accepted.toml": """[[accepted]]
        benchmark = "x"
        metric = "time"
        ratio = 1.2
        reason = "exact sums"
        expires = 2020-01-31
    """,
    "results/html/index.html": "<!doctype html><title>asv</title>",
    "results/published/gate_runs.csv": "other core,found,rate\nidle,12.5%,0.0123456\n",
    "results/published/mutants.csv": """\
mutant,wanted,exit_code,cause_named,kept,worst,others,commit,date
a-comment,0,3,False,False,1.149,0.85,0123abcd,2026-11-20
""",
}


def test_all_that_a_repository_publishes_is_shown(tmp_path):
    write_runs(tmp_path / "results" / "published", seconds=(0.8,) * 9, slow=1.6)
    guides = {f"built/{name}.html": "" for name in GUIDES}
    site = build(tmp_path, PUBLISHED | guides, docs=tmp_path / "built")
    # a faster peer comes first, and an absent one has its reason
    index = read(site, "index.html")
    assert "<h1>treesort is 0.50 times as fast as heapq, the fastest of 2 other libraries" in index
    assert "Where it loses:</strong> Slower in" in index
    assert index.index('scope="row" class="wrap">heapq') < index.index('class="wrap">slow')
    assert "pip install bisect" in read(site, "comparison.html")
    assert all(f'href="docs/{name}.html' in index for name in GUIDES)
    assert (site / "docs" / "index.html").is_file()
    assert (site / "history" / "index.html").is_file()
    changes = read(site, "changes.html")
    assert "exact sums" in changes
    assert "2020-01-31, expired" in changes
    noise = read(site, "noise.html")
    for shown in (
        *("0.012346", "12.5%", "a comment", ">15%<", ">0.85<", ">0123abcd</code>"),
        "0 of 0 harmful changes failed with their cause named, and 0 of 1 harmless ones passed.",
        "None of these failed.",
    ):
        assert shown in noise


def test_a_declaration_gives_label_colour_marker_note_and_variants(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / LIBRARIES).write_text("""
        heapq = {label = "heapq (C)", color = "#123456", marker = "x", note = "another algorithm"}
        treesort = {ours = true, label = "Treesort"}
        treesort-debug = {runs = "treesort"}
        bisect-loop = {package = "bisect"}
    """)
    project = read_project(tmp_path, ["bisect", "heapq"])
    assert (project.title, project.ours) == ("Treesort", "treesort")
    order = ["treesort", "heapq", "treesort-debug", "bisect-loop", "bisect"]
    assert list(project.libraries) == order
    heapq = project.libraries["heapq"]
    assert (heapq.label, heapq.note) == ("heapq (C)", "another algorithm")
    assert (heapq.style.light, heapq.style.marker) == ("#123456", "x")
    assert project.libraries["bisect-loop"].package == project.libraries["bisect"].package
    assert len({library.style for library in project.libraries.values()}) == 5


def test_without_any_declaration_the_package_s_name_says_which_library_is_ours(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tree_sort"\n')
    project = read_project(tmp_path, ["heapq", "tree-sort"])
    assert (project.title, project.ours) == ("tree_sort", "tree-sort")
    assert read_project(tmp_path, ["heapq"]).ours == ""


@pytest.mark.parametrize(
    ("more", "commits", "guides"),
    [
        ('"repo": "https://a.org/b.git"', "https://a.org/b/commit/", "https://a.org/b/blob/HEAD/"),
        ('"show_commit_url": "https://git.example/c/"', "https://git.example/c/", ""),
        ('"show_commit_url": "javascript:alert(1)//"', "", ""),
    ],
)
def test_commits_and_sources_of_pages_are_where_the_configuration_says(
    tmp_path, more, commits, guides
):
    write_runs(tmp_path / "results" / "csv")
    files = {CONFIG: f'{{"project": "treesort", {more}}}'}
    files |= {f"docs/{name}.md": "" for name in GUIDES}
    index = read(build(tmp_path, files, docs=tmp_path / "built"), "index.html")
    links = re.findall(r'<a href="([^"]+)"><code class="hash"', index)
    assert set(links) == ({commits + "0" * 40} if commits else set())
    found = set(re.findall(r'href="([^"]+\.md)"', index))
    assert found == ({f"{guides}docs/{name}.md" for name in GUIDES} if guides else set())


def test_what_was_measured_on_uncommitted_changes_is_never_published(tmp_path):
    write_runs(tmp_path / "results" / "published", commit="0" * 40 + "-dirty")
    site = build(tmp_path)
    assert "not measured yet" in read(site, "index.html")
    data = read(site, "data.html")
    for name in ("forest.csv", "forest_samples.json"):
        assert f"<li><code>published/{name}</code></li>" in data


def test_own_runs_have_a_page_and_change_no_other(tmp_path):
    write_runs(tmp_path / "results" / "published")
    site = build(tmp_path, {CONFIG: '{"project": "treesort"}'})
    before = {name: read(site, name) for name, _ in PAGES}
    assert "own.html" not in before["index.html"]  # an empty page is not in the navigation
    write_runs(tmp_path / "results" / "csv", seconds=(0.1, *[0.2, 0.8] * 4))
    build(tmp_path)
    link = '<a href="own.html">Own runs</a>'
    after = {name: read(site, name).replace(link, "") for name, _ in PAGES}
    assert {name for name in after if after[name] != before[name]} == {"own.html"}
    assert after["own.html"].count(">noisy</span></small>") == 2  # at both sizes


STEP = [1.0] * 8
IS_SLOWER = "1 benchmark is slower on main by the gate's rule."
IS_NOT = "No slowdown on main by the gate's rule in 1 benchmark."


@pytest.mark.parametrize(
    ("name", "values", "behind", "rules", "kind", "sentence"),
    [
        ("time_it", [1.0] * 4, 0, "", "quiet", "Too few commits of main were measured to tell"),
        ("time_it", [1.0] * 5, 20, "", "good", IS_NOT),
        ("time_it", [1.0] * 5, 21, "", "quiet", "The newest measured commit is 21 commits behind"),
        ("time_it", [*STEP, *[1.02] * 8], 0, "", "good", IS_NOT),  # the limit of a host is 3%
        ("time_it", [*STEP, *[1.02] * 8], 0, "class = 'hot'", "bad", IS_SLOWER),
        ("time_it", [*STEP, *[1.06] * 8], 0, "", "bad", IS_SLOWER),
        ("time_it", [*STEP, *[1.06] * 8], 0, "fail_ratio = 1.1\npass_ratio = 1.2", "good", IS_NOT),
        ("track_things_bytes", [*STEP, *[1.06] * 8], 0, "", "bad", IS_SLOWER),
    ],
)
def test_main_is_judged_by_the_rule_of_the_gate_from_enough_commits_that_are_new(
    tmp_path, name, values, behind, rules, kind, sentence
):
    write_asv(tmp_path / "asv", {f"suite.Class.{name}": np.array(values)})
    (tmp_path / "gate.toml").write_text(f"[[slowdown]]\nbenchmark = 'time_it'\n{rules}")
    site = read_site(tmp_path, BUILT, tmp_path / "none", tmp_path)
    site.archive.main = [commit.hash for commit in site.archive.commits] + ["later"] * behind
    found = answer(site)
    assert found["kind"] == kind
    assert found["sentence"].startswith(sentence)


def test_the_bisection_on_a_page_finds_the_commit(tmp_path):
    hashes = commit_files(tmp_path / "repository", ["code.py"] * 30)
    measured = hashes[:8] + hashes[-8:]
    values = {"suite.Class.time_it": np.repeat([1.0, 1.5], 8)}
    write_asv(tmp_path / "asv", values, workloads=("it's (1)",), commits=measured)
    ((history,), _) = histories(read_archive(tmp_path / "asv"))
    (change,) = history.open
    # A gate that finds the code slower from the 20th commit on, and sees what it was asked.
    gate = tmp_path / "bin" / "perfgate"
    gate.parent.mkdir()
    gate.write_text('#!/bin/sh\necho "$@" > "$0.said"\ntest "$(cat code.py)" -lt 19\n')
    gate.chmod(0o755)
    path = f"{gate.parent}{os.pathsep}{os.environ['PATH']}"
    found = run("sh", "-c", bisect(change), cwd=tmp_path / "repository", PATH=path)
    assert f"{hashes[19]} is the first bad commit" in found.stdout.replace("'", "")
    said = (tmp_path / "bin" / "perfgate.said").read_text().strip()
    pattern = said.removeprefix(f"--base {hashes[7][:8]} --bench ")
    name = """suite.Class.time_it("it's (1)")"""  # asv's
    assert re.search(pattern, name)
    assert not re.search(pattern, name.replace("time_it", "time_item"))


def test_the_history_is_that_of_the_configured_branch_and_says_what_it_left_out(tmp_path):
    root = tmp_path / "repository"
    commit_files(root, ["code.py"], "develop")
    write_asv(root / ".perf", history(1, 1, 12), workloads=("oak",))
    config = '{"project": "p", "branches": ["develop"], "results_dir": ".perf"}'
    site = build(root, {CONFIG: config})
    sentence = "because they are not on the branch develop: 12 of 12 measured commits."
    nothing = "The history of develop over its commits: not measured yet. Left out,"
    assert f"{nothing} {sentence}" in read(site, "index.html")
    assert sentence in read(site, "changes.html")


def test_newer_results_are_joined_to_the_committed_ones_and_none_counts_twice(tmp_path):
    committed, newer = tmp_path / "published" / "asv", tmp_path / "asv"
    write_asv(committed, {"a.time_a": np.full(40, 2.0), "a.time_b": np.ones(40)})
    write_asv(newer, {"a.time_a": np.ones(42)})
    archive = read_archive(newer, committed)
    assert len(archive.commits) == 42
    assert [point.value for point in archive.points["a.time_a"]] == [1.0] * 42
    assert list(archive.points) == ["a.time_a"], "the newer file of a commit is taken whole"
