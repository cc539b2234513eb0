"""The site: what it says, that nothing is missing, and that it works in a real browser, offline and without script."""

import html.parser
import http.server
import json
import os
import re
import shutil
import threading
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.plot_results import STYLES as PLOT_STYLES
from ci.site.drawing import STYLES
from ci.site.measurements import median_interval
from ci.site.build import PublishError, main, publish
from ci.site.formatting import percent, quantity, slugs, times
from myriad import timing
from made_up_results import commit_hash, history, write_asv

ROOT = Path(__file__).parents[2]
BUILT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MAX_FILE_BYTES = 2_000_000
LAST_RESORT_MS = 1_200_000  # a limit for what hangs: no test may depend on how busy the machine is
PAGES = ("index", "comparison", "benchmarks", "changes", "compare", "noise", "data")


# --- what is written ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site of our published results and of a made-up history with three setups."""
    folder = tmp_path_factory.mktemp("site with a space")
    shutil.copytree(ROOT / "results" / "published", folder / "results" / "published")
    workloads = tuple(f"cartpole-{place}" for place in range(5))
    versions, machines = ["0.10.1"] * 50 + ["0.10.2"] * 100, ["runner"] * 100 + ["runner-two"] * 50
    series = history(6, 5, 150)
    write_asv(folder / "results" / "asv", series, workloads=workloads, versions=versions, machines=machines)
    publish(folder / "results", folder / "site", BUILT)
    return folder / "site"


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
    assert len(list(site.rglob("*.html"))) > 50
    assert broken_references(site) == []


def test_without_any_results_every_page_says_not_measured_yet(tmp_path):
    publish(tmp_path / "none", tmp_path / "site", BUILT)
    for name in PAGES:
        assert "not measured yet" in (tmp_path / "site" / f"{name}.html").read_text(encoding="utf-8"), name
    assert broken_references(tmp_path / "site") == []
    assert "not measured yet" in (tmp_path / "site" / "badges" / "state.svg").read_text(encoding="utf-8")


def test_without_a_history_the_ratios_stand_all_the_same(tmp_path):
    shutil.copytree(ROOT / "results" / "published", tmp_path / "results" / "published")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "State of main: not measured yet." in text
    assert "python benchmarks/throughput.py --bars" in text
    assert "--output" not in text
    assert broken_references(tmp_path / "site") == []


def test_the_first_page_answers_first(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    sentence = re.search(r"<h1>(\d+) benchmarks? (is|are) slower on main than before\.</h1>", text)
    assert sentence
    assert text.index("<h1>") < text.index("<h2>")
    assert "stale" in text[: text.index("<h2>")]  # the made-up history ended in 2024
    state = (site / "badges" / "state.svg").read_text(encoding="utf-8")
    assert f"{sentence[1]} slower" in state


def test_a_number_of_thirty_days_ago_is_fresh_and_one_older_is_stale(tmp_path):
    shutil.copytree(ROOT / "results" / "published", tmp_path / "results" / "published")
    stamps = re.findall(r"(\d{8}T\d{6}Z)", "".join(p.read_text() for p in (tmp_path / "results").rglob("*.csv")))
    first, last = (
        datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for stamp in (min(stamps), max(stamps))
    )
    publish(tmp_path / "results", tmp_path / "site", first + timedelta(days=29))
    assert 'class="tag stale"' not in (tmp_path / "site" / "comparison.html").read_text(encoding="utf-8")
    publish(tmp_path / "results", tmp_path / "site", last + timedelta(days=32))
    text = (tmp_path / "site" / "comparison.html").read_text(encoding="utf-8")
    assert text.count('class="tag stale"') == text.count("data-measured")


def test_a_peer_that_is_ahead_is_named_first_and_one_that_is_absent_with_its_reason(tmp_path):
    source, target = ROOT / "results" / "published", tmp_path / "results" / "published"
    target.mkdir(parents=True)
    samples = json.loads((source / "throughput_pendulum_cpu_samples.json").read_text())
    for outcomes in samples["alternations"]:
        for outcome in (outcome for label, outcome in outcomes.items() if label.startswith("myriad pendulum-1k")):
            outcome["seconds"] = [seconds * 1e4 for seconds in outcome["seconds"]]
    (target / "throughput_pendulum_cpu_samples.json").write_text(json.dumps(samples))
    rows = (source / "throughput_pendulum_cpu.csv").read_text().splitlines()
    values = dict(zip(rows[0].split(","), rows[2].split(","), strict=True))
    values |= {"library": "envpool", "status": "not installed", "reason": "pip install envpool"}
    (target / "throughput_pendulum_cpu.csv").write_text("\n".join([*rows, ",".join(values.values())]) + "\n")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 0 < text.index("Where Myriad is slower") < text.index("How many times as fast")
    assert "pip install envpool" in (tmp_path / "site" / "comparison.html").read_text(encoding="utf-8")


def test_broken_files_are_left_out(tmp_path):
    folder = tmp_path / "results" / "csv"
    folder.mkdir(parents=True)
    (folder / "empty.csv").write_text("")
    (folder / "half.csv").write_text((ROOT / "results/published/throughput_snake_cpu.csv").read_text()[:-40])
    (folder / "half_samples.json").write_text('{"command": "python", "alternat')
    (folder / "other_samples.json").write_text("[1]")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    assert broken_references(tmp_path / "site") == []


def test_noise_tables_and_the_pages_of_asv_are_shown_where_they_exist(tmp_path):
    published = tmp_path / "results" / "published"
    published.mkdir(parents=True)
    (published / "noise_false_alarms.csv").write_text("other core,found,rate\nidle,12.5%,0.0123456\n")
    (published / "mutants.csv").write_text("mutant,kept\ndonation-dropped,True\n")
    (published / "selftest_pairs.csv").write_text("benchmark,log_ratio\nits-pairs-fill-pages,0.0123456\n")
    (tmp_path / "results" / "html").mkdir()
    (tmp_path / "results" / "html" / "index.html").write_text("<!doctype html><title>asv</title>")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    noise = (tmp_path / "site" / "noise.html").read_text(encoding="utf-8")
    assert "False alarms" in noise
    assert "0.012346" in noise
    assert '<td class="num">12.5%</td>' in noise
    assert "donation-dropped" in noise
    data = (tmp_path / "site" / "data.html").read_text(encoding="utf-8")
    assert "selftest_pairs.csv" in data
    assert not any(word in page for page in (noise, data) for word in ("its-pairs-fill-pages", "log ratio"))
    assert "they load scripts from other hosts" in noise
    assert (tmp_path / "site" / "history" / "index.html").is_file()


def test_accepted_regressions_are_shown_with_reason_and_last_day(tmp_path, capsys):
    accepted = tmp_path / "accepted.toml"
    accepted.write_text(
        '[[accepted]]\nbenchmark = "basics.time_total"\nmetric = "time"\nratio = 1.2\nreason = "exact sums"\n'
        "expires = 2020-01-31\n"
    )
    publish(tmp_path / "none", tmp_path / "site", BUILT, accepted)
    page = (tmp_path / "site" / "changes.html").read_text()
    assert "1.2 times" in page
    assert "exact sums" in page
    assert "2020-01-31, expired" in page

    accepted.write_text("[[accepted]]\nbenchmark = 7\n")
    assert main(["--results", str(tmp_path), "--output", str(tmp_path / "s"), "--accepted", str(accepted)]) == 2
    assert "accepted.toml: accepted" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_site_replaces_only_a_site(tmp_path, capsys):
    precious = tmp_path / "site" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 2
    assert "is no site of ours" in capsys.readouterr().err
    assert precious.read_text() == "mine"
    precious.unlink()
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 0
    assert main(["--results", str(tmp_path / "none"), "--output", str(precious.parent)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_site_is_never_built_over_its_results(tmp_path):
    (tmp_path / "site" / "results").mkdir(parents=True)
    (tmp_path / "site" / "site.json").write_text("{}")
    with pytest.raises(PublishError, match="holds the results themselves"):
        publish(tmp_path / "site" / "results", tmp_path / "site", BUILT)


def test_a_build_that_fails_leaves_the_old_site(site, tmp_path, monkeypatch):
    shutil.copytree(site, tmp_path / "site")
    monkeypatch.setattr("ci.site.build.data_files", lambda site: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish(tmp_path / "none", tmp_path / "site", BUILT)
    assert (tmp_path / "site" / "data" / "commits.js").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_feed_and_the_badges_are_well_formed(site):
    atom = "{http://www.w3.org/2005/Atom}"
    feed = ET.parse(site / "feed.xml").getroot()  # noqa: S314  (we wrote it)
    entries = feed.findall(f"{atom}entry")
    assert 10 <= len(entries) <= 50
    ids = [entry.findtext(f"{atom}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    dates = [entry.findtext(f"{atom}updated") or "" for entry in entries]
    assert dates == sorted(dates, reverse=True)
    for entry in entries:
        link = entry.find(f"{atom}link")
        assert link is not None
        assert (site / link.attrib["href"]).is_file()
    for badge in (site / "badges").glob("*.svg"):
        assert ET.parse(badge).getroot().tag.endswith("svg")  # noqa: S314


def test_raw_measurements_can_be_downloaded(site):
    (first,) = (site / "data" / "b").glob("suite_00.Throughput.time_chunk_00-cartpole-0.csv")
    lines = first.read_text().splitlines()
    assert lines[0] == "commit,date,machine,versions,seconds,low,high,samples"
    assert len(lines) == 151
    assert lines[1].startswith(commit_hash(0))
    published = {path.name for path in (ROOT / "results" / "published").glob("*_samples.json")}
    assert published <= {path.name for path in (site / "data" / "raw").iterdir()}


def test_a_series_has_the_colour_that_the_plots_give_it():
    assert {name: style.light for name, style in STYLES.items()} == {
        name: style["color"] for name, style in PLOT_STYLES.items() if name in STYLES
    }


def test_the_interval_of_a_ratio_is_that_of_myriad_timing():
    for num in range(6, 60):
        samples = [float(place * 7919 % 101) for place in range(num)]
        assert median_interval(samples) == timing.median_interval(samples)
    assert median_interval([1.0, 2.0]) == (None, None)


def test_numbers_are_written_for_people():
    assert [times(ratio) for ratio in (125.3, 8.86, 1.034, 0.5)] == ["125", "8.9", "1.03", "0.50"]
    assert [percent(ratio) for ratio in (1.052, 0.97, 3.0)] == ["+5.2%", "−3.0%", "3.00×"]  # noqa: RUF001
    assert [quantity(0.01234, "seconds"), quantity(2.0**20, "bytes")] == ["12.3 ms", "1 MiB"]
    assert slugs(["a(b)", "a-b", "A-b"]) == {"a(b)": "a-b", "a-b": "a-b-2", "A-b": "A-b-3"}


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        message = "chromium is missing: apt install chromium"
        if os.environ.get("MYRIAD_CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # its sandbox refuses to run as root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(
            executable_path=program, args=arguments, timeout=LAST_RESORT_MS
        )
        yield running
        running.close()


class Visit:
    """A page that is open, with all that went wrong on it and all that it asked for."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        self.context.set_default_timeout(LAST_RESORT_MS)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: said.type in {"error", "warning"} and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", lambda request: self.errors.append(request.url))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, fragment: str = "") -> "Visit":
        self.page.goto("about:blank")  # a new fragment alone would not load the page again
        self.page.goto(path.as_uri() + fragment)
        return self

    def drawn(self) -> "Visit":
        self.page.wait_for_function("performance.getEntriesByName('chart-drawn').length > 0")
        return self

    def inked(self, colour: str) -> int:
        """Count the pixels of the chart that have a colour, #RRGGBB."""
        return self.page.evaluate(
            """(colour) => {
              const canvas = document.querySelector('.plot canvas');
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const context = copy.getContext('2d', {willReadFrequently: true});
              context.drawImage(canvas, 0, 0);
              const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
              const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
              let count = 0;
              for (let at = 0; at < data.length; at += 4) {
                count += data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255;
              }
              return count;
            }""",
            colour,
        )


@pytest.fixture
def visit(browser) -> Iterator[Visit]:
    visit = Visit(browser)
    yield visit
    visit.context.close()
    assert visit.errors == []


def benchmark_page(site: Path) -> Path:
    return site / "b" / "suite_00.Throughput.time_chunk_00-cartpole-3.html"


def test_no_page_errs_or_asks_another_host(site, visit):
    pages = [site / f"{name}.html" for name in PAGES] + [benchmark_page(site), site / "b" / "throughput.snake-1k.html"]
    for page in pages:
        visit.open(page)
        images = "[...document.images].every((image) => { image.loading = 'eager'; return true; })"
        assert visit.page.evaluate(images)
        visit.page.wait_for_function("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert all(url.startswith((site.as_uri(), "data:", "about:")) for url in visit.requests)


def test_no_page_is_wider_than_a_phone(site, browser):
    visit = Visit(browser, viewport={"width": 360, "height": 740})
    for page in [*(site / f"{name}.html" for name in PAGES), benchmark_page(site)]:
        visit.open(page)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360, page
    visit.context.close()
    assert visit.errors == []


def test_the_scaling_graph_draws_and_a_hidden_line_leaves_the_others_their_colours(site, visit):
    visit.open(site / "index.html").drawn()
    before = {name: visit.inked(STYLES[name].light) for name in ("myriad", "gymnax", "myriad-plain")}
    assert min(before.values()) > 100
    visit.page.get_by_role("button", name="gymnax", exact=True).click()
    assert visit.inked(STYLES["gymnax"].light) == 0
    assert visit.inked(STYLES["myriad"].light) > 100
    assert visit.page.url.endswith("index.html#hide=gymnax")
    visit.page.get_by_role("button", name="gymnax", exact=True).click()
    assert visit.inked(STYLES["gymnax"].light) == before["gymnax"]
    assert visit.page.url.endswith("index.html")


def test_the_address_restores_the_selection(site, visit):
    visit.open(site / "index.html").drawn()
    visit.page.get_by_label("environment", exact=True).select_option("snake")
    visit.page.get_by_label("y axis").select_option("linear")
    visit.page.get_by_role("button", name="myriad-plain", exact=True).click()
    fragment = "#env=snake&y=linear&hide=myriad-plain"
    assert visit.page.url.endswith(fragment)
    visit.open(site / "index.html", fragment).drawn()
    assert visit.page.get_by_label("environment", exact=True).input_value() == "snake"
    assert visit.page.get_by_label("y axis").input_value() == "linear"
    assert visit.page.get_by_role("button", name="myriad-plain", exact=True).get_attribute("aria-pressed") == "false"
    assert visit.inked(STYLES["myriad-plain"].light) == 0
    assert visit.inked(STYLES["myriad"].light) > 100


def test_an_address_that_nobody_made_still_shows_a_graph(site, visit):
    visit.open(site / "index.html", "#env=nowhere&device=99&commit=none&hide=nobody,,&x=3").drawn()
    assert visit.inked(STYLES["myriad"].light) > 100


def test_pointing_and_the_arrow_keys_read_out_the_numbers(site, visit):
    visit.open(site / "index.html").drawn()
    readout = visit.page.locator("#scaling .readout")
    visit.page.locator("#scaling .plot").focus()
    visit.page.keyboard.press("End")
    assert "1,000,000 environments: myriad" in readout.inner_text()
    visit.page.keyboard.press("ArrowLeft")
    assert "100,000 environments: myriad" in readout.inner_text()
    visit.page.locator("#scaling .u-over").hover(position={"x": 3, "y": 80})
    assert readout.inner_text().startswith("1 environment:")


def test_a_history_shows_its_levels_and_changes(site, visit):
    visit.open(benchmark_page(site)).drawn()
    assert visit.inked("#0072B2") > 100
    assert visit.inked("#A8281F") > 100  # the rule where it became slower
    assert visit.page.get_by_text("other versions", exact=True).is_visible()
    visit.page.get_by_label("y axis").select_option("zero")
    assert visit.page.url.endswith("#y=zero")
    visit.page.get_by_label("machine").select_option("2")
    assert visit.inked("#0072B2") == 0
    assert visit.inked("#D55E00") > 100


def test_two_commits_are_compared_and_the_address_says_which(site, visit):
    before, after = (commit_hash(place)[:8] for place in (99, 60))
    visit.open(site / "compare.html", f"#{before}..{after}")
    visit.page.wait_for_function("document.getElementById('compared').textContent.includes('30 values compared')")
    visit.page.get_by_label("also what is within the noise").check()
    assert visit.page.locator("#comparison tbody tr").count() == 30
    visit.page.get_by_label("after").select_option(commit_hash(149)[:8])
    visit.page.wait_for_function("document.getElementById('compared').textContent.startsWith('0 values compared')")
    assert visit.page.url.endswith(f"#{before}..{commit_hash(149)[:8]}")


def test_tables_sort_and_filter(site, visit):
    visit.open(site / "changes.html")
    changes = visit.page.locator("#changes tbody tr")
    visit.page.get_by_role("button", name="change", exact=True).click()
    ratios = changes.locator("td:nth-child(2)").evaluate_all("cells => cells.map((cell) => Number(cell.dataset.sort))")
    assert ratios == sorted(ratios, reverse=True)
    visit.page.get_by_label("Show those that contain").fill("track_temp")
    assert changes.filter(visible=True).count() < len(ratios)


def test_everything_that_acts_is_reached_by_tab(site, visit):
    visit.open(site / "index.html").drawn()
    reached = set()
    for _ in range(80):
        visit.page.keyboard.press("Tab")
        focused = (
            "(e => e.className + '|' + e.tagName + '|' + e.textContent.trim().slice(0, 30))(document.activeElement)"
        )
        reached.add(visit.page.evaluate(focused))
    assert "skip|A|Skip to the content" in reached
    assert any(text.startswith("key|BUTTON|myriad") for text in reached)
    assert any(text.startswith("plot|DIV|") for text in reached)
    assert sum("|SELECT|" in text for text in reached) >= 4


def test_without_script_the_graph_and_the_tables_are_there(site, browser):
    visit = Visit(browser, java_script_enabled=False)
    visit.open(site / "index.html")
    assert visit.page.locator("#scaling svg.fallback .series").count() >= 2
    assert visit.page.get_by_text("environment steps per second, newest of each size").first.is_visible()
    visit.open(benchmark_page(site))
    assert visit.page.locator("svg.history").is_visible()
    assert visit.page.get_by_text("Levels").is_visible()
    visit.open(site / "changes.html")
    assert visit.page.locator("#changes tbody tr").count() > 5
    visit.context.close()


def test_a_dark_page_has_light_words_and_its_own_colours(site, browser):
    visit = Visit(browser, color_scheme="dark")
    visit.open(site / "index.html").drawn()
    assert visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 26)"
    assert visit.inked(STYLES["myriad"].dark) > 100
    visit.context.close()
    assert visit.errors == []


def test_it_works_from_a_sub_path_of_a_server(site, visit, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "speed").symlink_to(site)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        visit.page.goto(f"http://127.0.0.1:{server.server_port}/docs/speed/index.html")
        visit.drawn()
        visit.page.goto(visit.page.url.replace("index.html", f"b/{benchmark_page(site).name}"))
        visit.drawn()
        server.shutdown()
    assert all("/docs/speed/" in url or url.startswith("data:") for url in visit.requests)


@pytest.mark.slow
def test_it_stays_fast_with_600_benchmarks_and_500_commits(browser, tmp_path):
    write_asv(tmp_path / "results" / "asv", history(30, 20, 500), workloads=tuple(f"w{place}" for place in range(20)))
    shutil.copytree(ROOT / "results" / "published", tmp_path / "results" / "published")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    sizes = {path: path.stat().st_size for path in (tmp_path / "site").rglob("*") if path.is_file()}
    assert max(sizes.values()) < MAX_FILE_BYTES
    assert sum(path.name.endswith(".html") for path in sizes) > 600
    pages = {"index.html": 400_000, "b/suite_00.Throughput.time_chunk_00-w3.html": 250_000}
    for page, most_bytes in pages.items():
        visit = Visit(browser)
        visit.open(tmp_path / "site" / page).drawn()
        drawn_ms = visit.page.evaluate("performance.getEntriesByName('chart-drawn')[0].startTime")
        asked = {Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)) for url in visit.requests}
        num_bytes = sum(sizes.get(path, 0) for path in asked)
        print(f"{page}: first chart after {drawn_ms:.0f} ms, {num_bytes:,} bytes loaded")
        assert num_bytes < most_bytes
        visit.context.close()
        assert visit.errors == []
    assert sizes[tmp_path / "site" / "benchmarks.html"] < 1_000_000
