"""The site in a real browser: offline, with script and without, on a phone, light and dark."""

import gzip
import shutil
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from published_results import PUBLISHED, ROOT, build

from ci.site.pages import PAGES
from ci.site.project import read_project
from made_up_results import commit_hash, write_asv

pytestmark = pytest.mark.long


def benchmark_page(site: Path) -> Path:
    return site / "b" / "suite_00.Throughput.time_chunk_00-cartpole-3.html"


# Tables that are wider than their column scroll: on a phone those of words, elsewhere none.
@pytest.mark.parametrize(
    ("width", "tables"), [(360, ".table-wrapper:has(td code)"), (1280, ".scroll, .table-wrapper")]
)
def test_no_page_errs_or_asks_another_host_or_is_too_wide(site, pages, new_visit, width, tables):
    visit = new_visit(viewport={"width": width, "height": 740})
    ours = [*(site / name for name, _ in PAGES), benchmark_page(site)]
    for page in ours:
        visit.open(page)
        visit.page.evaluate("[...document.images].forEach((image) => image.loading = 'eager')")
        visit.page.wait_for_function(
            "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
        )
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, page
    assert all(url.startswith((site.as_uri(), "data:", "about:")) for url in visit.requests)
    for page in [*ours, *pages.rglob("*.html")]:
        visit.open(page)
        wide = visit.page.evaluate(
            """(tables) => {
              document.querySelectorAll('details').forEach((each) => each.open = true);
              return [...document.querySelectorAll(tables)]
                .filter((box) => box.scrollWidth > box.clientWidth)
                .map((box) => box.textContent.slice(0, 60));
            }""",
            tables,
        )
        assert wide == [], page
    visit.open(site / "benchmarks.html")
    for column in ("last change", "state"):
        box = visit.page.get_by_role("button", name=column, exact=True).bounding_box()
        assert box["x"] + box["width"] <= width


def test_the_graph_draws_and_a_hidden_line_leaves_the_others_their_colours(site, visit):
    visit.open(site / "index.html").drawn()
    libraries = read_project(ROOT, ()).libraries
    ours, gymnax = (libraries[name].style.light for name in ("myriad", "gymnax"))
    before = visit.inked(gymnax)
    assert min(before, visit.inked(ours)) > 100
    key = visit.page.get_by_role("button", name="gymnax", exact=True)
    key.click()
    assert visit.inked(gymnax) == 0
    assert visit.inked(ours) > 100
    assert visit.page.url.endswith("#hide=gymnax,myriad-plain")
    key.click()
    assert visit.inked(gymnax) == before
    assert visit.page.url.endswith("index.html")


def test_the_graph_never_mixes_kinds_of_rate_and_reads_out_what_is_pointed_at(tmp_path, visit):
    rows = [
        f"comparison,mine,maze,{agent},{size},{rate},ok,abcdef1,20261121T082729Z,cpu"
        for agent, rate in (("random", 1e6), ("mlp-64-64", 1e3), ("ppo", 10))
        for size in (1, 100)
    ]
    names = "suite,library,env,agent,num_envs,steps_per_s,status,commit,timestamp,device"
    table = "\n".join([names, *rows, ""])
    visit.open(build(tmp_path, {"results/published/mine.csv": table}) / "index.html").drawn()
    readout, rates = visit.page.locator("#scaling .readout"), visit.page.get_by_label("rate")
    assert rates.locator("option:disabled").all_inner_texts() == [
        "policy network 1,024 × 1,024: not measured yet"  # noqa: RUF001
    ]
    for agent, shown in (("random", "1 M"), ("mlp-64-64", "1 k"), ("ppo", "10")):
        rates.select_option(agent)
        visit.page.locator("#scaling .plot").focus()
        visit.page.keyboard.press("End")
        assert f"mine {shown} (" in readout.inner_text()
    assert visit.page.url.endswith("#rate=ppo")
    visit.page.locator("#scaling .u-over").hover(position={"x": 3, "y": 80})
    assert readout.inner_text().startswith("1 environment:")
    for key, size in (("End", "100 environments:"), ("ArrowLeft", "1 environment:")):
        visit.page.keyboard.press(key)
        assert readout.inner_text().startswith(size)
    assert visit.page.get_by_label("device").locator("option:disabled").count() == 1


def test_headline_and_tables_follow_the_choice_and_a_link_opens_with_it(site, visit):
    def shown() -> list[str]:
        return visit.page.locator("[data-choice]:visible").all_inner_texts()

    visit.open(site / "index.html", "#rate=mlp-64-64").drawn()
    assert len(shown()) == 3
    assert all("policy network 64" in text for text in shown())
    visit.page.get_by_label("environment", exact=True).select_option("snake")
    assert visit.page.url.endswith("#env=snake")
    assert all("snake, random actions" in text for text in shown())
    assert visit.page.locator("h1:visible").count() == 1


def test_two_commits_differ_only_where_their_intervals_part(tmp_path, visit):
    times, sizes = np.array([1.0, 1.015, 1.5]), np.array([4.0, 4.0, 5.0])
    series = {"suite.Class.time_it": times, "suite.Class.track_bytes": sizes}
    write_asv(tmp_path / "results" / "asv", series)
    page = build(tmp_path) / "compare.html"
    first, second, third = (commit_hash(place)[:8] for place in range(3))
    said = "2 values compared: {} worse, 0 better. For {} nobody can tell."
    visit.open(page, f"#{first}..{second}")
    visit.page.get_by_text(said.format(0, 2)).wait_for()
    visit.page.get_by_label("also those where nobody can tell").check()
    visit.page.locator("#comparison tbody tr").nth(1).wait_for()
    visit.page.get_by_label("after").select_option(third)
    visit.page.get_by_text(said.format(2, 0)).wait_for()
    assert visit.page.url.endswith(f"#{first}..{third}")


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


def test_tables_sort_and_filter(site, visit):
    visit.open(site / "changes.html")
    changes = visit.page.locator("#changes tbody tr")
    visit.page.get_by_role("button", name="change", exact=True).click()
    ratios = changes.locator("td:nth-child(2)").evaluate_all(
        "cells => cells.map((cell) => Number(cell.dataset.sort))"
    )
    assert ratios == sorted(ratios, reverse=True)
    rows = changes.evaluate_all("rows => rows.map((row) => row.id)")
    assert [f"{behind}-row" for behind in rows[1::2]] == rows[::2]
    visit.page.get_by_label("Show those that contain").fill("track_temp")
    assert changes.filter(visible=True).count() < len(ratios)


def test_the_first_screen_of_our_results_stays_under_100_kilobytes(tmp_path, visit):
    # Without what `make bench` may have measured in this clone.
    shutil.copytree(PUBLISHED, tmp_path / "results" / "published")
    visit.open(build(tmp_path, repository=ROOT) / "index.html").drawn()
    urls = {url for url in visit.requests if url.startswith("file:")}
    paths = [Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)) for url in urls]
    # As any server sends them.
    assert sum(len(gzip.compress(path.read_bytes())) for path in paths) < 100_000


def test_without_script_the_graph_and_the_tables_are_there(site, new_visit):
    visit = new_visit(java_script_enabled=False)
    visit.open(site / "index.html")
    assert visit.page.locator("#scaling svg.fallback .series").count() >= 2
    keys = visit.page.locator("#scaling .legend .key")
    assert keys.locator("svg").count() == keys.count() >= 2
    assert visit.page.get_by_text("The numbers of the graph").is_visible()
    visit.open(benchmark_page(site))
    assert visit.page.locator("svg.history").is_visible()
    assert visit.page.locator("svg.history text").count() == 4
    assert visit.page.get_by_text("Levels").is_visible()
    visit.open(site / "changes.html")
    assert visit.page.locator("#changes tbody tr").count() > 5
