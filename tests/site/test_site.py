"""What the site's files say, that none of them is missing, and that a mistake changes nothing."""

import html
import re
import urllib.parse
from datetime import timedelta
from pathlib import Path

import pytest
from published_results import MEASURED, PUBLISHED, ROOT, build, read, write_runs

from ci.site.build import main
from ci.site.pages import PAGES


def broken_references(folder: Path) -> list[str]:
    pages = {page: page.read_text(encoding="utf-8") for page in folder.rglob("*.html")}
    ids = {page: {"", *re.findall(r' id="([^"]+)"', text)} for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for reference in re.findall(r' (?:href|src)="([^"]*)"', text):
            url = urllib.parse.urlsplit(html.unescape(reference))
            path = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            has_id = path not in ids or url.fragment in ids[path]
            if url.scheme != "data" and (url.scheme or not path.is_file() or not has_id):
                broken.append(f"{page.relative_to(folder)}: {reference}")
    return broken


def test_every_link_and_image_leads_to_a_file_of_the_site(site):
    assert len(list(site.rglob("*.html"))) > 30
    assert broken_references(site) == []


def test_without_any_results_every_page_says_not_measured_yet(tmp_path):
    site = build(tmp_path)
    for name, _ in PAGES:
        assert "not measured yet" in read(site, name), name
    assert broken_references(site) == []


def test_all_that_we_publish_is_shown(tmp_path):
    (tmp_path / "results" / "asv").mkdir(parents=True)
    (tmp_path / "results" / "published").symlink_to(PUBLISHED)
    site = build(tmp_path, repository=ROOT)
    for name in ("index.html", "scaling.html", "comparison.html", "changes.html", "noise.html"):
        assert '<p class="empty">' not in read(site, name), name
    scaling = read(site, "scaling.html")
    assert "benchmarks/memory_profile.py --profile envs --num-envs 10000</code>" in scaling
    assert "benchmarks/scan_chunk.py --num-envs 1000 --scan-chunk-sizes 128</code>" in scaling
    data = read(site, "data.html")
    assert "<h2>Left out</h2>" not in data
    files = {path.name for path in PUBLISHED.iterdir() if path.suffix in {".csv", ".json"}}
    assert files == {path.name for path in (site / "data" / "raw").iterdir()}
    assert all(f'href="data/raw/{name}"' in data for name in files)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("comparison.html", ["python benchmarks/", "AMD EPYC", "with jax 0.10", "data/raw/"]),
        ("scaling.html", ["python benchmarks/", "2 cores", ", commit <code", "data/raw/"]),
        ("own.html", ["python benchmarks/", "AMD EPYC", "jax 0.10", "data/raw/mine"]),
        ("changes.html", ["asv run --bench", "jax 0.10", "data/b/"]),
    ],
)
def test_each_figure_opens_to_its_command_hardware_versions_and_files(site, page, words):
    text = read(site, page)
    found = re.findall(r'<tr class="evidence" id="([^"]+)">(.+?)</tr>', text, re.DOTALL)
    assert len(found) > 5
    for name, behind in found:
        assert f'<a class="opens" href="#{name}">' in text
        for word in [*words, '<span class="command"><code>']:
            assert word in behind
    dates = re.findall(r'<td class="since" data-sort="([^"]+)">', text)  # of changes
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize(("days", "is_old"), [(30, False), (31, True)])
def test_a_number_of_thirty_days_ago_is_fresh_and_one_older_is_old(tmp_path, days, is_old):
    write_runs(tmp_path / "results" / "published")
    config = {"asv.conf.json": '{"project": "treesort"}'}
    build(tmp_path, config, MEASURED)  # an older site, which is replaced
    site = build(tmp_path, config, MEASURED + timedelta(days=days))
    text = read(site, "comparison.html")
    dates = text.count("data-measured")
    assert dates > 2
    assert text.count('class="tag old">old') == (dates if is_old else 0)


LIBRARIES = "benchmarks/libraries.toml"


@pytest.mark.parametrize(
    ("written", "flags", "says"),
    [
        ({"site/precious": "mine"}, "", "site was not made by this command and would be replaced"),
        ({"site/site.json": "{}", "site/r/a": ""}, "--results site/r", "contains the results"),
        ({}, "--results none", "--results none does not exist."),
        ({}, "--accepted none", "--accepted none does not exist."),
        ({"file": ""}, "--output file/site", "file/site can't be written: File exists."),
        ({"ci/accepted.toml": "[[accepted]]\nbenchmark = 7\n"}, "", "accepted.toml: accepted"),
        ({LIBRARIES: "heapq = 1"}, "", "heapq must be a table, but got 1."),
        ({LIBRARIES: '[a]\ncolor = "red"'}, "", "a.color must be #RRGGBB, but got 'red'."),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    tmp_path, monkeypatch, capsys, written, flags, says
):
    monkeypatch.chdir(tmp_path)
    for name, text in written.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    assert main(flags.split()) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
