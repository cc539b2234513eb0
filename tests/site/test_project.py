"""The site of another repository, and what a repository may declare."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from published_results import BUILT, ROOT, read

from ci.site.build import publish
from ci.site.project import read_project
from made_up_results import history, write_asv
from perfgate.errors import UsageError

LIBRARIES = tomllib.loads((ROOT / "benchmarks" / "libraries.toml").read_text())
# A library that is run in other ways has more names. NumPy is every project's.
OUR_NAMES = re.compile(
    "|".join(
        [*(LIBRARIES.keys() - {"numpy"}), "cartpole", "pendulum", "snake", "bucket", "gene.circ"]
    ),
    re.IGNORECASE,
)


def write_libraries(repository: Path, text: str) -> None:
    (repository / "benchmarks").mkdir(exist_ok=True)
    (repository / "benchmarks" / "libraries.toml").write_text(text)


def write_runs(folder: Path) -> None:
    """Write what a suite publishes: the rows and the samples of two libraries at two sizes."""
    folder.mkdir(parents=True)
    rows = ["suite,library,env,num_envs,steps_per_s,status,commit,timestamp"]
    alternations = []
    for num_envs in (10, 1000):
        outcomes = {}
        for library, seconds in (("treesort", 0.1), ("heapq", 0.4)):
            workload = {"name": f"forest-{num_envs}", "env": "forest", "num_envs": num_envs}
            outcomes[library] = {
                "case": {"side": library, "workload": workload},
                "hello": {"library_version": "2.0", "hardware": {"device_name": "Abacus"}},
                "prepared": {"num_steps": 100},
                "status": "ok",
                "seconds": [seconds] * 9,
            }
            found = f"{num_envs},{num_envs * 100 / seconds},ok,{'0' * 40},20261120T120000Z"
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
    assert "<h1>treesort is the fastest of 2 measured here: 4.0 times the steps per second" in index
    assert index.count(">4.0\N{MULTIPLICATION SIGN}</a>") == 2
    for path in (tmp_path / "site").rglob("*"):
        found = OUR_NAMES.search(path.name)
        if path.is_file():
            found = found or OUR_NAMES.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"


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
        """,
    )
    project = read_project(tmp_path, ["bisect", "heapq"])
    assert (project.title, project.ours) == ("Treesort", "treesort")
    assert list(project.libraries) == ["treesort", "heapq", "treesort-debug", "bisect"]
    heapq = project.libraries["heapq"]
    assert (heapq.label, heapq.note) == ("heapq (C)", "another algorithm")
    assert (heapq.style.light, heapq.style.marker) == ("#123456", "x")
    assert project.variants_of("treesort") == ["treesort-debug"]
    assert project.is_ours("treesort-debug")
    assert not project.is_ours("bisect")
    assert len({library.style for library in project.libraries.values()}) == 4


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


def test_the_history_is_that_of_the_configured_branch_and_says_what_it_left_out(tmp_path):
    def git(*args: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *args], check=True)

    git("init", "--quiet", "-b", "develop")
    git("commit", "--quiet", "--allow-empty", "-m", "First")
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
