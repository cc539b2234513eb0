"""What the first page shows: a sentence, the scaling chart, the state of main, and one table."""

from typing import Any

from ci.site import status
from ci.site.model import Site
from ci.site.pages.scaling import scaling_charts
from ci.site.ratio_table import headline


def first_page(site: Site) -> dict[str, Any]:
    """Return the context of the first page."""
    tables = site.ratio_tables
    table = tables[0] if tables else None
    charts = scaling_charts(site)
    # the chart of the table's environment comes first, so that both tell of one thing
    charts.sort(key=lambda chart: table is None or chart.env != table.env)
    return {
        "headline": headline(table, site.project.title),
        "table": table,
        "answer": status.answer(site),
        "behind": status.slower(site.speedups),
        "charts": charts,
    }
