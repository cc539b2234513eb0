"""The charts without script: what the SVG holds, and what it leaves to the page."""

import re
import xml.etree.ElementTree as ET

from ci.site.charts import history_svg
from perfgate.history.asv_results import Archive, Point, RecordedBenchmark, Setup
from perfgate.history.benchmark_history import history_of

SVG = "{http://www.w3.org/2000/svg}"
DAY_S = 86_400


def parsed(svg: str) -> ET.Element:
    named = str(svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ET.fromstring(named)  # noqa: S314  (we wrote it)


def test_a_history_has_a_dot_per_measurement_and_a_rule_per_change_and_marker():
    values = [1.0, 1.01] * 5 + [4.0, 4.02] * 5 + [3.0]
    points = [
        Point(
            f"{day:040x}",
            day * DAY_S,
            Setup("a", "1" if day < 20 else "2", ""),
            value,
            None,
            None,
            (),
        )
        for day, value in enumerate(values)
    ]
    svg = history_svg(
        history_of(RecordedBenchmark("<a>", "a", (), "seconds", ""), points, Archive())
    )
    chart = parsed(svg)
    assert chart.findtext(f"{SVG}title") == "<a>: 21 measurements, 1 change of level"
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", svg)) == 21
    assert [line.get("class") for line in chart.iter(f"{SVG}line")] == ["marker", "change"]
    words = [text.text for text in chart.iter(f"{SVG}text")]
    assert words == ["1 s", "1970-01-01", "1970-01-21", "4.02 s"]
