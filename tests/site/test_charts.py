"""The charts without script: what the SVG holds, and what it leaves to the page."""

import re
import xml.etree.ElementTree as ET

import numpy as np

from ci.site.charts import history_svg
from made_up_results import write_asv
from perfgate.history.asv_results import read_archive
from perfgate.history.benchmark_history import histories

SVG = "{http://www.w3.org/2000/svg}"


def test_a_history_has_a_dot_per_measurement_and_a_rule_per_change_and_marker(tmp_path):
    values = np.array([1.0, 1.01] * 5 + [4.0, 4.02] * 5 + [3.0])
    write_asv(tmp_path, {"<a>.time": values}, versions=["1"] * 20 + ["2"])
    ((history,), _) = histories(read_archive(tmp_path))
    svg = history_svg(history)
    chart = ET.fromstring(str(svg).replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))  # noqa: S314
    assert chart.findtext(f"{SVG}title") == "<a>.time: 21 measurements, 1 change of level"
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", svg)) == 21
    assert [line.get("class") for line in chart.iter(f"{SVG}line")] == ["marker", "change"]
    words = [text.text for text in chart.iter(f"{SVG}text")]
    assert words == ["1 s", "2023-11-14", "2023-12-04", "4.02 s"]
