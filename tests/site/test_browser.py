"""The site in a real browser: offline, with script and without, on a phone, light and dark."""

import gzip
import shutil
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from published_results import BUILT, ROOT

from ci.site.build import publish
from ci.site.pages import PAGES
from made_up_results import commit_hash, write_asv

FIRST_SCREEN_BYTES = 100_000


def benchmark_page(site: Path) -> Path:
    return site / "b" / "suite_00.Throughput.time_chunk_00-cartpole-3.html"


@pytest.mark.long
def test_no_page_errs_or_asks_another_host(site, visit):
    pages = [site / name for name, _ in PAGES] + [
        benchmark_page(site),
    ]
    for page in pages:
        visit.open(page)
        images = "[...document.images].every((image) => { image.loading = 'eager'; return true; })"
        assert visit.page.evaluate(images)
        visit.page.wait_for_function(
            "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
        )
    assert all(url.startswith((site.as_uri(), "data:", "about:")) for url in visit.requests)


@pytest.mark.long
def test_no_page_is_wider_than_a_phone(site, new_visit):
    visit = new_visit(viewport={"width": 360, "height": 740})
    for page in [*(site / name for name, _ in PAGES), benchmark_page(site)]:
        visit.open(page)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360, page


@pytest.mark.long
def test_no_table_is_wider_than_its_column_on_a_desktop(site, pages, visit):
    ours = [*(site / name for name, _ in PAGES), benchmark_page(site)]
    for page in [*ours, *pages.rglob("*.html")]:
        visit.open(page)
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach((each) => each.open = true)"
        )
        wide = visit.page.locator(".scroll, .table-wrapper").evaluate_all(
            "boxes => boxes.filter((box) => box.scrollWidth > box.clientWidth)"
            ".map((box) => box.textContent.slice(0, 60))"
        )
        assert wide == [], page


@pytest.mark.long
def test_on_a_phone_names_break_and_state_and_change_stay_in_view(site, new_visit):
    visit = new_visit(viewport={"width": 390, "height": 844}).open(site / "benchmarks.html")
    for column in ("last change", "state"):
        box = visit.page.get_by_role("button", name=column, exact=True).bounding_box()
        assert box["x"] + box["width"] <= 390
    name = visit.page.locator("#benchmarks tbody th").first
    assert name.locator("wbr").count() > 2


@pytest.mark.slow
def test_the_scaling_graph_draws_and_a_hidden_line_leaves_the_others_their_colours(
    site, project, visit
):
    visit.open(site / "index.html").drawn()
    before = {
        name: visit.inked(project.libraries[name].style.light) for name in ("myriad", "gymnax")
    }
    assert min(before.values()) > 100
    visit.page.get_by_role("button", name="gymnax", exact=True).click()
    assert visit.inked(project.libraries["gymnax"].style.light) == 0
    assert visit.inked(project.libraries["myriad"].style.light) > 100
    assert visit.page.url.endswith("#hide=gymnax,gymnax-configured,myriad-plain")
    visit.page.get_by_role("button", name="gymnax", exact=True).click()
    assert visit.inked(project.libraries["gymnax"].style.light) == before["gymnax"]
    assert visit.page.url.endswith("index.html")


@pytest.mark.slow
def test_the_graph_switches_between_kinds_of_rate_and_never_mixes_two(tmp_path, visit):
    folder = tmp_path / "results" / "published"
    folder.mkdir(parents=True)
    rows = [
        f"comparison,mine,maze,{agent},{size},{rate},ok,abcdef1,20261121T082729Z,cpu"
        for agent, rate in (("random", 1e6), ("mlp-64-64", 1e3), ("ppo", 10))
        for size in (1, 100)
    ]
    names = "suite,library,env,agent,num_envs,steps_per_s,status,commit,timestamp,device"
    (folder / "mine.csv").write_text("\n".join([names, *rows]) + "\n")
    publish(tmp_path / "results", tmp_path / "site", BUILT)
    visit.open(tmp_path / "site" / "index.html").drawn()
    rates = visit.page.get_by_label("rate")
    assert rates.locator("option:disabled").all_inner_texts() == [
        "policy network 1,024 × 1,024: not measured yet"  # noqa: RUF001
    ]
    for agent, shown in (("random", "1 M"), ("mlp-64-64", "1 k"), ("ppo", "10")):
        rates.select_option(agent)
        visit.page.locator("#scaling .plot").focus()
        visit.page.keyboard.press("End")
        assert f"mine {shown} (" in visit.page.locator("#scaling .readout").inner_text()
    assert visit.page.url.endswith("#rate=ppo")
    assert visit.page.get_by_label("device").locator("option:disabled").count() == 1


@pytest.mark.slow
def test_two_commits_differ_only_where_their_intervals_part(tmp_path, visit):
    times, sizes = np.array([1.0, 1.015, 1.5]), np.array([4.0, 4.0, 5.0])
    series = {"suite.Class.time_it": times, "suite.Class.track_bytes": sizes}
    write_asv(tmp_path / "results" / "asv", series)
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    hashes = [commit_hash(place)[:8] for place in range(3)]
    for pair, said in (
        (hashes[:2], "2 values compared: 0 worse, 0 better. For 2 nobody can tell."),
        (hashes[1:], "2 values compared: 2 worse, 0 better. For 0 nobody can tell."),
    ):
        visit.open(tmp_path / "site" / "compare.html", f"#{'..'.join(pair)}")
        visit.page.wait_for_function("document.getElementById('compared').textContent")
        assert visit.page.locator("#compared").inner_text() == said


@pytest.mark.long
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


@pytest.mark.long
def test_two_commits_are_compared_and_the_address_says_which(site, visit):
    before, after = (commit_hash(place)[:8] for place in (99, 60))
    visit.open(site / "compare.html", f"#{before}..{after}")
    visit.page.wait_for_function(
        "document.getElementById('compared').textContent.includes('30 values compared')"
    )
    visit.page.get_by_label("also those where nobody can tell").check()
    assert visit.page.locator("#comparison tbody tr").count() == 30
    visit.page.get_by_label("after").select_option(commit_hash(149)[:8])
    visit.page.wait_for_function(
        "document.getElementById('compared').textContent.startsWith('0 values compared')"
    )
    assert visit.page.url.endswith(f"#{before}..{commit_hash(149)[:8]}")


@pytest.mark.long
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


@pytest.mark.long
def test_the_first_screen_of_our_results_stays_under_100_kilobytes(tmp_path, visit):
    # Without what `make bench` may have measured in this clone.
    shutil.copytree(ROOT / "results" / "published", tmp_path / "results" / "published")
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=ROOT)
    visit.open(tmp_path / "site" / "index.html").drawn()
    # As any server sends them.
    sent = [len(gzip.compress(path.read_bytes())) for path in asked_for(visit)]
    assert sum(sent) < FIRST_SCREEN_BYTES


@pytest.mark.long
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


def asked_for(visit) -> set[Path]:
    """Return the files that a page asked for."""
    urls = [url for url in visit.requests if url.startswith("file:")]
    return {Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)) for url in urls}


@pytest.mark.long
def test_pointing_and_the_arrow_keys_read_out_the_numbers(site, visit):
    visit.open(site / "index.html").drawn()
    readout = visit.page.locator("#scaling .readout")
    visit.page.locator("#scaling .plot").focus()
    visit.page.keyboard.press("End")
    assert "1,000,000 environments: Myriad" in readout.inner_text()
    visit.page.keyboard.press("ArrowLeft")
    assert "100,000 environments: Myriad" in readout.inner_text()
    visit.page.locator("#scaling .u-over").hover(position={"x": 3, "y": 80})
    assert readout.inner_text().startswith("1 environment:")
