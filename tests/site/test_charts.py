"""The charts without script: what the SVG holds, and what it leaves to the page."""

import re
import xml.etree.ElementTree as ET

from ci.site.charts import HistoryMarks, Line, history_svg, scaling_svg
from ci.site.palette import style

LINES = [
    Line(style(0), [1, 10, 1000], [1e6, 2e6, 3e6], [0.9e6, 1.9e6, 2.9e6], [1.1e6, 2.1e6, 3.1e6]),
    Line(style(1), [1, 10], [1e5, 2e5], [1e5, 2e5], [1e5, 2e5]),
]
MARKS = HistoryMarks([2], [1], ("1 ms", "4 ms"), ("2026-01-01", "2026-01-04"))
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    named = str(svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ET.fromstring(named)  # noqa: S314  (we wrote it)


def test_a_scaling_chart_labels_its_axes_and_draws_a_group_per_series():
    chart = parsed(scaling_svg(LINES, "rates & sizes"))
    assert chart.findtext(f"{SVG}title") == "rates & sizes"
    assert (chart.get("role"), chart.get("aria-label")) == ("img", "rates & sizes")
    words = [text.text for text in chart.iter(f"{SVG}text")]
    assert words == ["1", "10", "100", "1,000", "100 k", "1 M", "10 M", "environments side by side"]
    looks = {
        group.get("style") for group in chart.iter(f"{SVG}g") if group.get("class") == "series"
    }
    assert looks == {f"--light:{look.light};--dark:{look.dark}" for look in (style(0), style(1))}


def test_a_history_has_a_dot_per_measurement_and_a_rule_per_change_and_marker():
    svg = history_svg([1.0, 2.0, 4.0, 3.0], MARKS, "a history")
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", svg)) == 4
    assert svg.count("var(--bad)") == 1
    assert svg.count("stroke-dasharray") == 1
    words = [text.text for text in parsed(svg).iter(f"{SVG}text")]
    assert words == ["1 ms", "4 ms", "2026-01-01", "2026-01-04"]
