"""The page of a campaign: what the terminal prints, and only plots that its trials allow."""

import dataclasses
import html
import re

import numpy as np
import optuna
import pytest

from myriad.tuning import TuneResult
from myriad.tuning.confirmation import confirm
from myriad.tuning.objective import Score
from myriad.tuning.report import summary, write_report
from myriad.tuning.space import load_space
from tests.tuning import small_space


def campaign(tmp_path, completed):
    """Return the result of trials whose return is their gamma, best on fresh seeds the last."""
    made = small_space.settings(tmp_path, output=tmp_path / "out").completed()
    space = load_space(made)
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: space.suggest(trial)["agent.gamma"], completed)
    score = Score.of(np.array([[90.0], [92.0], [94.0]]))
    found = confirm(Score.of(np.array([[10.0], [12.0], [11.0]])), {completed - 1: score}, [1, 2, 3])
    best, found = (study.trials[-1], found) if completed else (None, None)
    return TuneResult(made, space, study, best, found, None, None, 0, completed, 1.0, ())


@pytest.mark.parametrize(
    ("completed", "drawn"),
    [(0, []), (4, ["history"]), (20, ["history", "slice", "parallel", "importances"])],
)
def test_the_report_says_what_the_terminal_does_and_draws_what_its_trials_allow(
    tmp_path, completed, drawn
):
    result = campaign(tmp_path, completed)
    files = write_report(result)
    text = (tmp_path / "out" / "s_report.html").read_text()
    for line in summary(result).splitlines():
        assert html.escape(line) in text
    if completed:
        # If all failed when they trained again, the best of the study is named.
        failed = dataclasses.replace(result, confirmation=confirm(None, {}, [1, 2]))
        assert "not confirmed on fresh seeds" in summary(failed)
        assert f"<h1>ppo on cartpole-control: trial {completed - 1} is better than" in text
    assert re.findall(r'<div id="(\w+)" class="plotly-graph-div"', text) == drawn
    # Every other plot says how many trials it needs.
    needs = re.findall(rf"<p>[^<]*: needs \d+ completed trials, and {completed} c", text)
    assert len(needs) == 4 - len(drawn)
    assert ('src="plotly.min.js"' in text) == bool(drawn)
    html_files = {file.name for file in files if file.suffix == ".html"}
    pages = {f"s_{page}.html" for page in drawn if page != "slice"}
    assert html_files == {"s_report.html"} | pages
    assert (tmp_path / "out" / "plotly.min.js").exists() == bool(drawn)
