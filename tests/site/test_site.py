"""What the site's files say, and that none of them is missing."""

import html.parser
import json
import re
import shutil
import urllib.parse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from published_results import BUILT, ROOT, copy_published, read

from ci.site.build import main, publish
from ci.site.formatting import counted, pattern, percent, quantity, slugs, times
from ci.site.measurements import SuiteRun
from ci.site.pages import PAGES
from ci.site.ratios import median_interval
from made_up_results import commit_hash
from myriad import timing
from perfgate.errors import UsageError


class References(html.parser.HTMLParser):
    """Gathers what a page refers to and the ids that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.references: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.references += [named[name] for name in ("href", "src") if name in named]
        self.ids |= {named["id"]} if "id" in named else set()


def broken_references(folder: Path) -> list[str]:
    broken = []
    for page in folder.rglob("*.html"):
        found = References(page.read_text(encoding="utf-8"))
        for reference in found.references:
            url = urllib.parse.urlsplit(reference)
            target = page.parent / urllib.parse.unquote(url.path)
            if url.scheme == "data" or (not url.path and url.fragment in found.ids):
                continue
            if url.scheme or not url.path or not target.is_file():
                broken.append(f"{page.relative_to(folder)}: {reference}")
    return broken


def test_every_link_and_image_leads_to_a_file_of_the_site(site):
    assert len(list(site.rglob("*.html"))) > 30
    assert broken_references(site) == []


def test_without_any_results_every_page_says_not_measured_yet(tmp_path):
    publish(tmp_path / "none", tmp_path / "site", BUILT)
    for name, _ in PAGES:
        assert "not measured yet" in read(tmp_path / "site", name), name
    assert broken_references(tmp_path / "site") == []
    # Settings, studies and devices are sections, which are there once they were measured.
    assert "tuning found" not in read(tmp_path / "site", "comparison.html")
    assert "Over devices" not in read(tmp_path / "site", "scaling.html")


def test_without_a_history_the_ratios_stand_all_the_same(tmp_path):
    copy_published(tmp_path / "results" / "published")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    text = read(tmp_path / "site", "index.html")
    heading = re.search(r"<h1>(.+)</h1>", text)
    assert heading
    assert "not measured yet" not in heading[1]
    assert "The history of main over its commits: not measured yet." in text
    assert "python benchmarks/comparison.py --full" in text  # the command that a run recorded
    assert "--output" not in text
    assert broken_references(tmp_path / "site") == []


def test_the_first_page_answers_before_its_graph_and_its_table(site):
    text = read(site, "index.html")
    order = [
        " times as fast as the fastest of 4 other libraries: cartpole-control, random actions",
        "outputs not kept, compiling not counted. The strongest rival is",
        " and gymnasium-vector from ",
        "Where it loses:",
        "slower on main than before.",
        'id="graph"',
        'class="numbers ratios"',
        "The numbers of the graph",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert re.search(r"<h1>Myriad is \d+ to \d+ times as fast", text)
    assert re.search(r"\d+ benchmarks? (is|are) slower on main than before", text)


def test_the_table_lists_the_strongest_rival_first_and_says_why_a_cell_is_empty(site):
    text = read(site, "index.html")
    table = text[text.index('class="numbers ratios"') :].partition("</table>")[0]
    heads = re.findall(r'<th scope="row"[^>]*>([^<]+)', table)
    assert heads[:2] == ["gymnasium-vector 1.3.0", "myriad-jax 0.2.0"]
    assert heads[-1] == "Myriad, steps/s"
    assert re.search(r">\d+\N{MULTIPLICATION SIGN}</a> <small>\d+ to \d+</small>", table)
    assert '<a class="quiet" href="comparison.html#absent">refused</a>' in table


def test_a_ratio_leads_to_its_command_rounds_hardware_and_versions(site):
    text = read(site, "index.html")
    comparison = read(site, "comparison.html")
    anchors = re.findall(r'href="comparison.html#(of-[^"]+)"', text)
    assert len(anchors) > 20
    for anchor in anchors:
        row = rf'<tr class="evidence" id="{anchor}">(.+?)</tr>'
        (behind,) = re.findall(row, comparison, re.DOTALL)
        for words in ("benchmarks/comparison.py", " --num-envs ", "AMD EPYC", "jax 0.10.2"):
            assert words in behind
        assert 'href="data/raw/comparison_' in behind


def test_changes_come_newest_first_and_each_opens_to_its_command_and_versions(site):
    text = read(site, "changes.html")
    table = text[text.index('<table id="changes"') :].partition("</table>")[0]
    dates = re.findall(r'<td class="since" data-sort="(\d{4}-\d\d-\d\d)">', table)
    assert len(dates) > 5
    assert dates == sorted(dates, reverse=True)
    behind = re.findall(r'<tr class="evidence" id="[^"]+">(.+?)</tr>', table, re.DOTALL)
    assert len(behind) == len(dates)
    assert all("asv run --bench" in each and "jax" in each for each in behind)
    assert len(re.findall("<small>between <code", table)) == len(dates)


def test_a_command_measures_its_point_alone_where_the_suite_can():
    def again(command: str, commit: str = "0123456789") -> str:
        run = SuiteRun("", command, commit, None, "", ())
        return run.again(100, "gymnasium-vector")

    python = "git checkout 01234567 && python benchmarks/"
    alone = "--num-envs 100 --library gymnasium-vector"
    assert again("python benchmarks/comparison.py --full") == f"{python}comparison.py {alone}"
    for other in ("comparison.py --training", "comparison.py --num-envs 9", "mine.py --full"):
        assert again(f"python benchmarks/{other}") == f"{python}{other}"
    assert again("mine", "0123456789-dirty") == "mine"


def test_the_pattern_of_a_benchmark_finds_it_alone():
    written = pattern("sort.time_sort", ("list-10k", "(a'b)"))
    assert written == r"'sort.time_sort\(.?list-10k.?, .?.a.b..?\)'"
    assert re.search(written[1:-1], """sort.time_sort('list-10k', "(a'b)")""")
    assert not re.search(written[1:-1], "sort.time_sort('list-100k', 'a')")
    assert pattern("sort.time_sort", ()) == "'sort.time_sort$'"


def test_a_number_of_thirty_days_ago_is_fresh_and_one_older_is_old(tmp_path):
    published = tmp_path / "results" / "published"
    published.mkdir(parents=True)
    for file in (ROOT / "results" / "published").glob("comparison_cpu*"):
        shutil.copy(file, published)
    stamps = re.findall(
        r"(\d{8}T\d{6}Z)", "".join(p.read_text() for p in (tmp_path / "results").rglob("*.csv"))
    )
    first, last = (
        datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        for stamp in (min(stamps), max(stamps))
    )
    folders = (tmp_path / "results", tmp_path / "site")
    publish(*folders, first + timedelta(days=29), repository=tmp_path)
    assert 'class="tag old">old' not in read(tmp_path / "site", "comparison.html")
    publish(*folders, last + timedelta(days=32), repository=tmp_path)
    text = read(tmp_path / "site", "comparison.html")
    assert text.count('class="tag old">old') == text.count("data-measured")


def test_a_faster_peer_comes_first_and_an_absent_one_has_its_reason(tmp_path, repository):
    source, target = ROOT / "results" / "published", tmp_path / "results" / "published"
    target.mkdir(parents=True)
    samples = json.loads((source / "throughput_pendulum_cpu_samples.json").read_text())
    for outcomes in samples["alternations"]:
        for outcome in (
            outcome for label, outcome in outcomes.items() if label.startswith("myriad pendulum-1k")
        ):
            outcome["seconds"] = [seconds * 1e4 for seconds in outcome["seconds"]]
    (target / "throughput_pendulum_cpu_samples.json").write_text(json.dumps(samples))
    rows = (source / "throughput_pendulum_cpu.csv").read_text().splitlines()
    values = dict(zip(rows[0].split(","), rows[2].split(","), strict=True))
    values |= {"library": "envpool", "status": "not installed", "reason": "pip install envpool"}
    (target / "throughput_pendulum_cpu.csv").write_text(
        "\n".join([*rows, ",".join(values.values())]) + "\n"
    )
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=repository)
    text = read(tmp_path / "site", "index.html")
    assert "<h1>Myriad is 0.0" in text
    assert 'class="worse"' in text
    assert re.search(
        r"Where it loses:</strong>.* Slower in <a [^>]+>pendulum-control, random", text
    )
    assert "pip install envpool" in read(tmp_path / "site", "comparison.html")


def test_accepted_regressions_are_shown_with_reason_and_last_day(tmp_path, capsys):
    accepted = tmp_path / "accepted.toml"
    accepted.write_text(
        '[[accepted]]\nbenchmark = "basics.time_total"\nmetric = "time"\nratio = 1.2\n'
        'reason = "exact sums"\nexpires = 2020-01-31\n'
    )
    publish(tmp_path / "none", tmp_path / "site", BUILT, accepted=accepted)
    page = read(tmp_path / "site", "changes.html")
    assert "1.2 times" in page
    assert "exact sums" in page
    assert "2020-01-31, expired" in page

    accepted.write_text("[[accepted]]\nbenchmark = 7\n")
    folders = ["--results", str(tmp_path), "--output", str(tmp_path / "s")]
    assert main([*folders, "--accepted", str(accepted)]) == 2
    assert "accepted.toml: accepted" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_site_replaces_only_a_site(tmp_path, capsys):
    precious = tmp_path / "site" / "precious.txt"
    precious.parent.mkdir()
    (tmp_path / "none").mkdir()
    precious.write_text("mine")
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 2
    assert "was not made by this command" in capsys.readouterr().err
    assert precious.read_text() == "mine"
    precious.unlink()
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 0
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none", "site"]


def test_a_path_that_does_not_exist_or_can_not_be_written_is_refused(tmp_path, capsys):
    missing = tmp_path / "none"
    for name in ("results", "repository", "docs", "accepted"):
        assert main([f"--{name}", str(missing), "--output", str(tmp_path / "site")]) == 2
        assert capsys.readouterr().err == f"--{name} {missing} does not exist.\n"
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "site"
    assert main(["--results", str(tmp_path), "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"{output} can't be written: File exists.\n"


def test_the_site_is_never_built_over_its_results(tmp_path):
    (tmp_path / "site" / "results").mkdir(parents=True)
    (tmp_path / "site" / "site.json").write_text("{}")
    with pytest.raises(UsageError, match="contains the results"):
        publish(tmp_path / "site" / "results", tmp_path / "site", BUILT)


def test_raw_measurements_can_be_downloaded(site):
    (first,) = (site / "data" / "b").glob("suite_00.Throughput.time_chunk_00-cartpole-0.csv")
    lines = first.read_text().splitlines()
    assert lines[0] == "commit,date,machine,versions,seconds,low,high,samples"
    assert len(lines) == 151
    assert lines[1].startswith(commit_hash(0))
    published = {path.name for path in (ROOT / "results" / "published").glob("*scaling*.json")}
    assert published <= {path.name for path in (site / "data" / "raw").iterdir()}


def test_the_interval_of_a_ratio_is_that_of_myriad_timing():
    # From 1,024 samples on, a float can't hold 2**num.
    for num in (*range(6, 60), 1_023, 1_024, 2_000):
        samples = [float(place * 7919 % 101) for place in range(num)]
        assert median_interval(samples) == timing.median_interval(samples)
    assert median_interval([1.0, 2.0]) == (None, None)


def test_numbers_are_written_for_people():
    assert [counted(1, "core"), counted(2_000, "core")] == ["1 core", "2,000 cores"]
    assert [times(ratio) for ratio in (125.3, 8.86, 1.034, 0.5)] == ["125", "8.9", "1.03", "0.50"]
    assert [percent(ratio) for ratio in (1.052, 0.97, 3.0)] == ["+5.2%", "−3.0%", "3.00×"]  # noqa: RUF001
    assert [quantity(0.01234, "seconds"), quantity(2.0**20, "bytes")] == ["12.3 ms", "1 MiB"]
    assert slugs(["a(b)", "a-b", "A-b"]) == {"a(b)": "a-b", "a-b": "a-b-2", "A-b": "A-b-3"}


def test_documentation_that_was_built_is_published_with_the_site(tmp_path):
    docs = tmp_path / "built"
    (docs / "guide").mkdir(parents=True)
    (docs / "index.html").write_text("<p>All pages</p>")
    (docs / "guide" / "first.html").write_text("<p>First steps</p>")
    (docs / "environments.html").touch()
    copy_published(tmp_path / "results" / "published")
    site = tmp_path / "site"
    publish(tmp_path / "results", site, BUILT, repository=tmp_path, docs=docs)
    assert (site / "docs" / "guide" / "first.html").read_text() == "<p>First steps</p>"
    link = '<a href="docs/index.html">Documentation</a>'
    assert link in read(site, "index.html")
    own = '<a href="docs/environments.html">Use your own environment</a>'
    assert own in read(site, "index.html")
    # Without documentation there is nothing to lead to.
    publish(tmp_path / "results", site, BUILT, repository=tmp_path, docs=tmp_path / "none")
    assert link not in read(site, "index.html")
    assert own not in read(site, "index.html")
    assert not (site / "docs").exists()


@pytest.mark.parametrize(
    ("repo", "said"),
    [
        (".", "Documentation: <code>docs/index.md</code>"),
        (
            "https://example.org/a/b.git",
            '<a href="https://example.org/a/b/blob/HEAD/docs/index.md">Documentation</a>',
        ),
    ],
)
def test_without_built_documentation_the_site_names_its_source(tmp_path, repo, said):
    copy_published(tmp_path / "results" / "published")
    (tmp_path / "asv.conf.json").write_text(
        f'{{"version": 1, "project": "myriad", "repo": "{repo}"}}'
    )
    (tmp_path / "docs").mkdir()
    for name in ("index", "environments", "gpu"):
        (tmp_path / "docs" / f"{name}.md").touch()
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    text = read(tmp_path / "site", "index.html")
    assert said in text
    for name, words in (
        ("environments", "Use your own environment"),
        ("gpu", "GPU: not measured for this site"),
    ):
        assert words in text
        assert f"docs/{name}.md" in text


def test_noise_tables_and_the_pages_of_asv_are_shown_where_they_exist(tmp_path):
    published = tmp_path / "results" / "published"
    published.mkdir(parents=True)
    (published / "gate_runs.csv").write_text("other core,found,rate\nidle,12.5%,0.0123456\n")
    (published / "mutants.csv").write_text("mutant,kept\ndonation-dropped,True\n")
    (tmp_path / "results" / "html").mkdir()
    (tmp_path / "results" / "html" / "index.html").write_text("<!doctype html><title>asv</title>")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    noise = read(tmp_path / "site", "noise.html")
    assert "Gate runs" in noise
    assert "0.012346" in noise
    assert '<td class="num">12.5%</td>' in noise
    assert "donation-dropped" in noise
    data = read(tmp_path / "site", "data.html")
    assert "gate_runs.csv" in data
    assert "they load scripts from other hosts" in noise
    assert (tmp_path / "site" / "history" / "index.html").is_file()


@pytest.mark.slow
def test_two_builds_of_the_same_results_are_equal(site, tmp_path, repository):
    publish(site.parent / "results", tmp_path / "site", BUILT, repository=repository)
    for page in site.rglob("*.html"):
        again = tmp_path / "site" / page.relative_to(site)
        assert again.read_bytes() == page.read_bytes(), page
