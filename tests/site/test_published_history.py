"""The history that this repository publishes: real, long enough, and its shifts explained."""

import re
from datetime import UTC, datetime

import pytest
from published_results import PUBLISHED

from ci.site.annotations import read_annotations
from ci.site.build import publish

BUILT = datetime(2026, 11, 26, 12, tzinfo=UTC)
ROOT = PUBLISHED.parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    results = folder / "results"
    results.mkdir()
    (results / "published").symlink_to(PUBLISHED)
    publish(results, folder / "site", BUILT, repository=ROOT)
    return folder / "site"


def test_the_state_of_main_is_known(site):
    first = (site / "index.html").read_text(encoding="utf-8")
    assert "The history of main over its commits: not measured yet" not in first


def test_shifts_that_were_found_say_their_cause(site):
    changes = (site / "changes.html").read_text(encoding="utf-8")
    explained = set(re.findall(r'<div class="cause">([^<]+)</div>', changes))
    causes = {each.cause for each in read_annotations(PUBLISHED / "annotations.toml")}
    assert len(explained & causes) >= 2
