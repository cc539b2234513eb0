"""The site of another repository, and what a repository may declare."""

import json
import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from published_results import BUILT, ROOT, read

from ci.site.build import publish
from ci.site.model import read_site
from ci.site.pages import PAGES
from ci.site.pages.changes import answer
from ci.site.project import read_project
from made_up_results import history, write_asv
from perfgate.errors import UsageError

LIBRARIES = tomllib.loads((ROOT / "benchmarks" / "libraries.toml").read_text())
# A library that is run in other ways has more names. NumPy is every project's.
OUR_NAMES = re.compile(
    "|".join(
        [
            *(LIBRARIES.keys() - {"numpy"}),
            "cartpole",
            "pendulum",
            "snake",
            "bucket",
            "gene.circ",
        ]
    ),
    re.IGNORECASE,
)


def write_libraries(repository: Path, text: str) -> None:
    (repository / "benchmarks").mkdir(exist_ok=True)
    (repository / "benchmarks" / "libraries.toml").write_text(text)


def write_runs(folder: Path, seconds: Sequence[float] = (0.1,) * 9, **more: float) -> None:
    """Write what a suite publishes: the rows and the samples of two libraries at two sizes.

    `more` are the seconds of further libraries.
    """
    others = {name: [took] * 9 for name, took in ({"heapq": 0.4} | more).items()}
    folder.mkdir(parents=True)
    rows = ["suite,library,env,num_envs,steps_per_s,status,commit,timestamp"]
    alternations = []
    for num_envs in (10, 1000):
        outcomes = {}
        for library, took in ({"treesort": seconds} | others).items():
            workload = {"name": f"forest-{num_envs}", "env": "forest", "num_envs": num_envs}
            outcomes[library] = {
                "case": {"side": library, "workload": workload},
                "hello": {"library_version": "2.0", "hardware": {"device_name": "Abacus"}},
                "prepared": {"num_steps": 100},
                "status": "ok",
                "seconds": list(took),
            }
            found = f"{num_envs},{num_envs * 100 / took[0]},ok,{'0' * 40},20261120T120000Z"
            rows.append(f"throughput,{library},forest,{found}")
        alternations.append(outcomes)
    (folder / "forest.csv").write_text("\n".join(rows) + "\n")
    samples = {"command": "python run.py", "alternations": alternations}
    (folder / "forest_samples.json").write_text(json.dumps(samples))


def test_the_site_of_another_repository_names_nothing_of_ours(tmp_path):
    (tmp_path / "asv.conf.json").write_text('{"project": "treesort"}  // asv allows comments')
    write_runs(tmp_path / "results" / "csv")
    series = history(3, 2, 40)
    write_asv(tmp_path / "results" / "asv", series, workloads=("oak", "elm"))
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)

    index = read(tmp_path / "site", "index.html")
    assert "<title>treesort, measured</title>" in index
    assert "<h1>treesort is 4.0 times as fast as heapq: forest, random actions, CPU.</h1>" in index
    assert index.count(">4.0\N{MULTIPLICATION SIGN}</a>") == 2
    for path in (tmp_path / "site").rglob("*"):
        found = OUR_NAMES.search(path.name)
        if path.is_file():
            found = found or OUR_NAMES.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"


def test_a_limit_has_a_row_of_its_own_and_is_no_rival(tmp_path):
    write_libraries(
        tmp_path, "[treesort]\nours = true\n[heapq]\n[loop]\nlabel = 'a bare loop'\nlimit = true"
    )
    write_runs(tmp_path / "results" / "csv", loop=0.05)
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    index = read(tmp_path / "site", "index.html")
    assert "<h1>treesort is 4.0 times as fast as heapq: forest, random actions, CPU.</h1>" in index
    assert "The strongest rival is heapq." in index
    assert "nowhere in what was measured" in index
    assert index.count(">0.50\N{MULTIPLICATION SIGN}</a>") == 2
    assert index.index('scope="row">heapq') < index.index('scope="row">a bare loop')


def test_a_declaration_gives_label_colour_marker_note_and_variants(tmp_path):
    write_libraries(
        tmp_path,
        """
        [heapq]
        label = "heapq (C)"
        color = "#123456"
        marker = "x"
        note = "another algorithm"

        [treesort]
        ours = true
        label = "Treesort"

        [treesort-debug]
        runs = "treesort"

        [bisect-loop]
        package = "bisect"
        """,
    )
    project = read_project(tmp_path, ["bisect", "heapq"])
    assert (project.title, project.ours) == ("Treesort", "treesort")
    assert list(project.libraries) == [
        "treesort",
        "heapq",
        "treesort-debug",
        "bisect-loop",
        "bisect",
    ]
    heapq = project.libraries["heapq"]
    assert (heapq.label, heapq.note) == ("heapq (C)", "another algorithm")
    assert (heapq.style.light, heapq.style.marker) == ("#123456", "x")
    assert project.variants_of("treesort") == ["treesort-debug"]
    assert project.libraries["bisect-loop"].package == project.libraries["bisect"].package
    assert len({library.style for library in project.libraries.values()}) == 5


def test_without_any_declaration_the_package_s_name_says_which_library_is_ours(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tree_sort"\n')
    project = read_project(tmp_path, ["heapq", "tree-sort"])
    assert (project.title, project.ours) == ("tree_sort", "tree-sort")
    assert read_project(tmp_path, ["heapq"]).ours == ""


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"repo": "https://git.example/me/trees.git"}, "https://git.example/me/trees/commit/"),
        ({"show_commit_url": "https://git.example/c/", "repo": "."}, "https://git.example/c/"),
        ({"show_commit_url": "javascript:alert(1)//"}, ""),
    ],
)
def test_commits_link_to_the_repository_that_the_configuration_names(tmp_path, settings, address):
    (tmp_path / "asv.conf.json").write_text(json.dumps({"project": "treesort", **settings}))
    write_runs(tmp_path / "results" / "csv")
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    index = read(tmp_path / "site", "index.html")
    links = re.findall(r'<a href="([^"]+)"><code class="hash"', index)
    assert links == ([address + "0" * 40] if address else [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[heapq", "is not valid TOML"),
        (
            '[heapq]\ncolor = "red"',
            "heapq.color must be #RRGGBB, but got 'red'",
        ),
    ],
)
def test_a_mistake_in_the_declaration_is_answered(tmp_path, text, message):
    write_libraries(tmp_path, text)
    with pytest.raises(UsageError, match=re.escape(message)):
        read_project(tmp_path, [])


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(("since", "is_old"), [(50, False), (51, True)])
def test_a_figure_says_how_many_commits_changed_its_code_since(tmp_path, since, is_old):
    (tmp_path / "asv.conf.json").write_text('{"project": "treesort"}')
    (tmp_path / "treesort").mkdir()
    git(tmp_path, "init", "--quiet", "-b", "main")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "Measured")
    measured = git(tmp_path, "rev-parse", "HEAD")
    for place in range(since):
        (tmp_path / "treesort" / "code.py").write_text(f"{place}")
        git(tmp_path, "add", "treesort")
        git(tmp_path, "commit", "--quiet", "-m", "Change the code")
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "Change something else")
    write_runs(tmp_path / "results" / "published")
    rows = tmp_path / "results" / "published" / "forest.csv"
    rows.write_text(rows.read_text().replace("0" * 40, measured))
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    index = read(tmp_path / "site", "index.html")
    assert f"</time>, {since} commits ago" in index
    assert ('class="tag old"' in index) == is_old


def test_what_was_measured_on_uncommitted_changes_is_never_published(tmp_path):
    write_runs(tmp_path / "results" / "published")
    rows = tmp_path / "results" / "published" / "forest.csv"
    rows.write_text(rows.read_text().replace("0" * 40, "0" * 40 + "-dirty"))
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    assert "not measured yet" in read(tmp_path / "site", "index.html")
    data = read(tmp_path / "site", "data.html")
    for name in ("forest.csv", "forest_samples.json"):
        assert f"<li><code>published/{name}</code></li>" in data


def test_own_runs_have_a_page_and_change_no_other(tmp_path):
    (tmp_path / "asv.conf.json").write_text('{"project": "treesort"}')
    write_runs(tmp_path / "results" / "published")
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    before = {name: read(tmp_path / "site", name) for name, _ in PAGES}
    assert "own.html" not in before["index.html"]  # an empty page is not in the navigation
    write_runs(tmp_path / "results" / "csv", seconds=(0.1, *[0.2, 0.8] * 4))
    (tmp_path / "results" / "plots").mkdir()
    (tmp_path / "results" / "plots" / "mine.png").write_bytes(b"a plot")
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    link = '<a href="own.html">Own runs</a>'
    after = {name: read(tmp_path / "site", name).replace(link, "") for name, _ in PAGES}
    changed = {name for name, _ in PAGES if after[name] != before[name]}
    assert changed == {"own.html"}
    assert "noisy" not in before["index.html"]
    own = read(tmp_path / "site", "own.html")
    assert own.count(">noisy</span></small>") == 2  # at both sizes
    assert "forest, random actions: steps per second" in own


@pytest.mark.parametrize(
    ("measured", "behind", "kind", "sentence"),
    [
        (4, 0, "quiet", "Too few commits of main were measured to tell whether it is slower."),
        (5, 20, "good", "No slowdown on main in 1 benchmark."),
        (
            5,
            21,
            "quiet",
            "The newest measured commit is 21 commits behind main, so nothing is said",
        ),
    ],
)
def test_main_is_judged_from_enough_commits_that_are_new(
    tmp_path, measured, behind, kind, sentence
):
    write_asv(tmp_path / "asv", {"suite.Class.time_it": np.ones(measured)})
    site = read_site(tmp_path, BUILT, tmp_path / "none", tmp_path)
    site.archive.main = [commit.hash for commit in site.archive.commits] + ["later"] * behind
    found = answer(site)
    assert found["kind"] == kind
    assert found["sentence"].startswith(sentence)


def test_the_history_is_that_of_the_configured_branch_and_says_what_it_left_out(tmp_path):
    git(tmp_path, "init", "--quiet", "-b", "develop")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "First")
    (tmp_path / "asv.conf.json").write_text(
        '{"project": "p", "branches": ["develop"], "results_dir": ".perf"}'
    )
    write_asv(tmp_path / ".perf", history(1, 1, 12), workloads=("oak",))
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    sentence = "because they are not on the branch develop: 12 of 12 measured commits."
    index = read(tmp_path / "site", "index.html")
    assert (
        f"The history of develop over its commits: not measured yet. Left out, {sentence}" in index
    )
    assert sentence in read(tmp_path / "site", "changes.html")
