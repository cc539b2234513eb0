"""A person's sentence for a shift stands at its commit on every page that shows the shift."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from published_results import BUILT, PUBLISHED, ROOT, read

from ci.site.annotations import Annotation, causes_by_commit, read_annotations
from ci.site.build import main, publish
from made_up_results import commit_hash, write_asv
from perfgate.errors import UsageError
from perfgate.history.asv_results import read_archive
from perfgate.history.benchmark_history import histories

STEP = 20
NAME = "basics.Sums.time_total"
CAUSE = "Sums are exact now, & that takes a second pass."


def entry(commit: str, benchmark: str = "^basics", cause: str = CAUSE) -> str:
    return (
        f"[[annotation]]\ncommit = '{commit}'\nbenchmark = '{benchmark}'\n"
        f"cause = {json.dumps(cause)}\n"
    )


@pytest.fixture
def published(tmp_path) -> Path:
    """The committed history of a repository that is not ours: 40 commits, with a step at one."""
    folder = tmp_path / "results" / "published"
    noise = np.random.default_rng(1).normal(1, 0.002, (2, 40))
    step = np.where(np.arange(40) >= STEP, 1.2, 1.0)
    series = {NAME: noise[0] * step, "others.time_rest": noise[1]}
    write_asv(folder / "asv", series)
    return folder


def test_the_cause_stands_on_the_pages_of_changes_benchmarks_and_the_history(published, tmp_path):
    (published / "annotations.toml").write_text(entry(commit_hash(STEP)[:8]))
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    shown = '<div class="cause">Sums are exact now, &amp; that takes a second pass.</div>'
    for page in ("changes.html", "benchmarks.html", f"b/{NAME}.html"):
        assert read(tmp_path / "site", page).count(shown) == 1, page
    assert shown not in read(tmp_path / "site", "b/others.time_rest.html")
    drawn = read(tmp_path / "site", f"data/b/{NAME}.js")
    assert f'"causes":[[{STEP},"{CAUSE}"]]' in drawn


def test_newer_results_are_joined_to_the_committed_ones_and_none_counts_twice(published, tmp_path):
    write_asv(tmp_path / "results" / "asv", {NAME: np.ones(42)})
    archive = read_archive(tmp_path / "results" / "asv", published / "asv")
    assert len(archive.commits) == 42
    assert len(archive.points[NAME]) == 42
    assert {point.value for point in archive.points[NAME]} == {1.0}
    assert archive.points.keys() == {NAME}, "the newer file of a commit is taken whole"


def test_a_cause_of_an_unmeasured_commit_stands_at_the_next_measured_one(published):
    archive = read_archive(published / "asv")
    skipped = "f" * 40
    archive.main = [commit.hash for commit in archive.commits]
    archive.main.insert(STEP, skipped)
    (history,) = (each for each in histories(archive) if each.benchmark.name == NAME)
    said = [Annotation(commit=skipped[:9], benchmark="Sums", cause="Why.")]
    assert causes_by_commit(said, history, archive) == {commit_hash(STEP): ["Why."]}


def test_a_cause_that_fits_nothing_is_shown_apart(published, tmp_path):
    lost = entry("0123456789") + entry(commit_hash(STEP)[:8], "^renamed", "It has a new name.")
    (published / "annotations.toml").write_text(lost)
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    changes = read(tmp_path / "site", "changes.html")
    apart = changes[changes.index("Causes without a place") :]
    assert "0123456789" in apart
    assert "It has a new name." in apart
    assert 'class="cause"' not in changes


def test_our_own_history_is_published_and_its_shifts_say_their_cause(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "published").symlink_to(PUBLISHED)
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=ROOT)
    first = read(tmp_path / "site", "index.html")
    assert "The history of main over its commits: not measured yet" not in first
    changes = read(tmp_path / "site", "changes.html")
    explained = set(re.findall(r'<div class="cause">([^<]+)</div>', changes))
    causes = {each.cause for each in read_annotations(PUBLISHED / "annotations.toml")}
    assert len(explained & causes) >= 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (entry("HEAD~1"), "annotation.0.commit must be a commit's first 7 or more digits"),
        (entry("0123456", "("), "annotation.0.benchmark is not a valid regular expression"),
        (entry("0123456", cause="  "), "annotation.0.cause must be a sentence that says why"),
        (entry("0123456").replace("cause", "reason"), "annotation.0.reason: Unexpected"),
        ("[[annotation]\n", "annotations.toml is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_answered_in_one_sentence(tmp_path, capsys, text, sentence):
    file = tmp_path / "results" / "published" / "annotations.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_annotations(file)
    assert sentence in str(caught.value)
    folders = ["--results", str(tmp_path / "results"), "--output", str(tmp_path / "site")]
    assert main(folders) == 2
    assert capsys.readouterr().err == f"{caught.value}\n"
    assert not (tmp_path / "site").exists()
