"""The page of a campaign: what the terminal prints, and only plots that its trials allow."""

import html
import re

import numpy as np
import optuna
import pytest
from optuna.trial import create_trial

from myriad.tuning import TuneResult
from myriad.tuning.confirmation import confirm
from myriad.tuning.objective import Score
from myriad.tuning.report import summary, write_report
from myriad.tuning.space import load_space
from tests.tuning import small_space

DISTRIBUTIONS = {
    "agent.learning_rate": optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True),
    "agent.num_epochs": optuna.distributions.IntDistribution(1, 3),
    "agent.gamma": optuna.distributions.FloatDistribution(0.9, 0.999),
}


def campaign(tmp_path, completed):
    """Return the result of trials whose return is their gamma's, best on fresh seeds the last."""
    made = small_space.settings(tmp_path, output=tmp_path / "out").completed()
    study = optuna.create_study(direction="maximize")
    for number in range(completed):
        share = number / max(1, completed - 1)
        params = {
            "agent.learning_rate": 1e-5 * 10 ** (3 * ((7 * number) % 11) / 11),
            "agent.num_epochs": 1 + number % 3,
            "agent.gamma": 0.9 + 0.09 * share,
        }
        trial = create_trial(params=params, distributions=DISTRIBUTIONS, value=100 * share)
        study.add_trial(trial)
    score = Score.of(np.array([[90.0], [92.0], [94.0]]))
    found = confirm(Score.of(np.array([[10.0], [12.0], [11.0]])), {completed - 1: score}, [1, 2, 3])
    best = study.trials[-1] if completed else None
    found = found if completed else None
    return TuneResult(made, load_space(made), study, best, found, None, 0, completed, 1.0, ())


@pytest.mark.parametrize(
    ("completed", "drawn", "pages"),
    [
        (0, [], []),
        (4, ["history"], ["history"]),
        (
            20,
            ["history", "slice", "parallel", "importances"],
            ["history", "importances", "parallel"],
        ),
    ],
)
def test_the_report_says_what_the_terminal_does_and_draws_what_its_trials_allow(
    tmp_path, completed, drawn, pages
):
    result = campaign(tmp_path, completed)
    files = write_report(result)
    text = (tmp_path / "out" / "s_report.html").read_text()
    for line in summary(result, []).splitlines():
        assert html.escape(line) in text
    if completed:
        assert f"<h1>ppo on cartpole-control: trial {completed - 1} is better than" in text
    assert re.findall(r'<div id="(\w+)" class="plotly-graph-div"', text) == drawn
    # Every other plot says how many trials it needs.
    assert len(re.findall(rf"<p>[^<]*: needs \d+ completed trials, and {completed} c", text)) == (
        4 - len(drawn)
    )
    assert ('src="plotly.min.js"' in text) == bool(drawn)
    html_files = {file.name for file in files if file.suffix == ".html"}
    assert html_files == {"s_report.html", *(f"s_{page}.html" for page in pages)}
    assert (tmp_path / "out" / "plotly.min.js").exists() == bool(drawn)
