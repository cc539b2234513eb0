"""One number for one thing: README, pages and site say what the published table says.

The table is made here anew, from the rows of `results/published` alone.
"""

import html
import re

from published_results import PUBLISHED, ROOT, read

from benchmarks.harness.results import read_csv
from ci.site.formatting import kind_of_rate, slug, times

OURS = "myriad"
CARTPOLE = "cartpole-control"


def fastest_rows() -> dict[tuple[str, str, str, int], dict[str, str]]:
    """Return the row of each environment, agent, library and size at its best chunk."""
    rows = [
        row
        for path in sorted(PUBLISHED.glob("*_cpu.csv"))
        for row in read_csv(path)
        if row.get("suite") in ("throughput", "comparison")
        if row["status"] == "ok" and not row["arm"]
    ]
    once: dict[tuple[str, ...], dict[str, str]] = {}
    # Of a chunk the newest run counts, and there the first row.
    for row in sorted(rows, key=lambda row: row["timestamp"], reverse=True):
        names = ("env", "agent", "library", "num_envs", "scan_chunk_size")
        once.setdefault(tuple(row[name] for name in names), row)
    return {  # the fastest comes last
        (*key[:2], key[2].removesuffix("-configured"), int(key[3])): row
        for key, row in sorted(once.items(), key=lambda each: float(each[1]["steps_per_s"]))
    }


BEST = fastest_rows()
RATIOS = {
    key: times(float(BEST[*key[:2], OURS, key[3]]["steps_per_s"]) / float(row["steps_per_s"]))
    for key, row in BEST.items()
    if not key[2].startswith("myriad") or key[2] == "myriad-jax"
    if (*key[:2], OURS, key[3]) in BEST
}


def ratios_of(env: str, agent: str, library: str) -> dict[int, str]:
    found = {key[3]: ratio for key, ratio in RATIOS.items() if key[:3] == (env, agent, library)}
    return dict(sorted(found.items()))


def value(ratio: str) -> float:
    return float(ratio.replace(",", ""))


def span(env: str, agent: str, least: int = 1) -> str:
    """Return our ratio to the fastest other library, at the worst size and at the best."""
    of_size: dict[int, list[str]] = {}
    for key, ratio in RATIOS.items():
        if key[:2] == (env, agent) and key[3] >= least:
            of_size.setdefault(key[3], []).append(ratio)
    fastest = sorted((min(ratios, key=value) for ratios in of_size.values()), key=value)
    return " to ".join(dict.fromkeys((fastest[0], fastest[-1])))


def markdown_rows(text: str) -> list[list[str]]:
    rows = re.findall(r"^\| (.*) ?\|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def test_the_readme_shows_the_ratios_of_the_table_and_the_chunks():
    section = (ROOT / "README.md").read_text().partition("## How fast\n")[2].partition("\n## ")[0]
    header, *rows = markdown_rows(section)
    sizes = [int(cell.split()[0].replace(",", "")) for cell in header[2:]]
    assert len(rows) == 5
    for library, actions, *cells in rows:
        agent = actions.replace("of a network ", "mlp-").replace(" x ", "-")
        shown = {size: cell for size, cell in zip(sizes, cells, strict=True) if cell}
        if library == "Myriad's chunk":
            rows_of = {size: BEST[CARTPOLE, agent, OURS, size] for size in sizes}
            assert shown == {s: f"{int(r['scan_chunk_size']):,}" for s, r in rows_of.items()}
        else:
            assert shown == ratios_of(CARTPOLE, agent, library)
    # Where gymnax is at its best with our options.
    under = [n for n in sizes if BEST[CARTPOLE, "random", "gymnax", n]["library"] != "gymnax"]
    assert under == [1, 100, 1_000]
    # At no size is another library faster than both of the table's.
    for size in sizes:
        rivals = {name: RATIOS.get((CARTPOLE, "random", name, size)) for _, _, name, _ in RATIOS}
        closest = min(filter(None, rivals.values()), key=value)
        assert closest in {rivals["gymnax"], rivals["gymnasium-vector"]}
    (of_gpu,) = re.findall(r"([\d.]+ to [\d.]+) times", section)
    table = [row for row in markdown_rows((ROOT / "docs" / "gpu.md").read_text()) if len(row) == 5]
    on_gpu = [float(row[-1].split()[0]) for row in table[1:] if row[-1][0].isdecimal()]
    assert of_gpu == f"{times(min(on_gpu))} to {times(max(on_gpu))}"


def test_the_page_of_the_comparison_says_no_second_value():
    text = " ".join((ROOT / "docs" / "comparison.md").read_text().split())
    policy = (CARTPOLE, "mlp-64-64")
    assert f"Myriad is {span(*policy, 100)} times as fast as gymnax from 100" in text
    names = ("gymnax", "myriad-jax")
    large = {name: ratios_of(CARTPOLE, "mlp-1024-1024", name)[1] for name in names}
    said = (f"{ratio} times as fast as {name}" for name, ratio in large.items())
    assert f"it is {' and '.join(said)} for 1 environment" in text
    every = re.findall(r"([\d.]+(?: to [\d.]+)?) times as fast", text)
    assert every == [span(*policy, 100), *large.values()]


def test_the_site_says_the_same(site):
    index = html.unescape(read(site, "index.html"))
    headline = r"<h1>myriad is (.+?) times as fast as .+?: (\S+), (.+?), CPU\."
    headlines = re.findall(headline, index)
    assert len(headlines) > 6
    agents = {kind_of_rate(agent): agent for _, agent, *_ in RATIOS}
    for many, env, kind in headlines:
        assert many == span(env, agents[kind]), (env, kind)
    rows = "(?:throughput|comparison)"  # and not those that write every step
    cell = (
        rf'href="comparison\.html#of-{rows}-(.+?)-(random|ppo|mlp-\d+-\d+)-([a-z-]+)-(\d+)-\w+"'
        r"[^>]*>([\d.,]+)\N{MULTIPLICATION SIGN}"
    )
    expected = {(slug(key[0]), *key[1:]): {ratio} for key, ratio in RATIOS.items()}
    for page in (index, html.unescape(read(site, "comparison.html"))):
        shown: dict[tuple[str, str, str, int], set[str]] = {}
        for env, agent, library, size, ratio in re.findall(cell, page):
            key = (env, agent, library.removesuffix("-configured"), int(size))
            shown.setdefault(key, set()).add(ratio)
        assert shown == expected
