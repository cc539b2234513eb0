"""Commands of tuning that published documents print run in a clone as they stand."""

import os
import sys
from pathlib import Path

import pytest

from tests.child_processes import run
from tests.tuning.test_study import trials_of

ROOT = Path(__file__).parents[2]
TUNED = """\
uv run python scripts/tune_hyperparameters.py
uv run python scripts/tune_hyperparameters.py --scenario hard --n-trials 50
uv run python scripts/tune_hyperparameters.py --scenario trivial_cooperation
uv run python scripts/tune_hyperparameters.py --n-jobs 4 --n-trials 100
uv run python scripts/tune_hyperparameters.py --n-jobs -1 --n-trials 200
uv run python scripts/tune_hyperparameters.py --n-jobs -1
uv run python scripts/tune_hyperparameters.py --n-jobs 2
uv run python scripts/tune_hyperparameters.py --study-name my_hard_scenario_tune --storage sqlite:///experiments/optuna_studies.db --n-trials 200
uv run python scripts/tune_hyperparameters.py --study-name my_hard_scenario_tune --storage sqlite:///experiments/optuna_studies.db --n-trials 50
uv run python scripts/tune_hyperparameters.py --study-name distributed_tune --storage postgresql://user:pass@host/db --n-trials 50
uv run python scripts/tune_hyperparameters.py --num-steps 20000 --n-trials 30 --n-jobs 4
uv run python scripts/tune_hyperparameters.py --num-steps 50000 --n-trials 100 --n-jobs 4
uv run python scripts/tune_hyperparameters.py --num-steps 100000 --n-trials 200 --n-jobs 8 --storage sqlite:///experiments/production_tune.db
uv run python scripts/tune_hyperparameters.py --pruner none
uv run python scripts/tune_hyperparameters.py --num-steps 20000 --n-trials 20
uv run python scripts/tune_hyperparameters.py --storage sqlite:///experiments/tunes.db --study-name my_study
uv run python scripts/tune_hyperparameters.py --num-steps 20000
uv run python scripts/tune_hyperparameters.py --n-trials 200 --num-steps 100000
uv run python scripts/tune_hyperparameters.py --scenario easy --num-steps 10000 --n-trials 10 --n-jobs 4
uv run python scripts/tune_hyperparameters.py --scenario hard --num-steps 100000 --n-trials 500 --n-jobs 16 --study-name production_hard --storage sqlite:///experiments/production.db
for scenario in easy default hard chain_reaction; do uv run python scripts/tune_hyperparameters.py --scenario $scenario --n-trials 100 --study-name tune_${scenario} --storage sqlite:///experiments/scenario_tunes.db; done
for scenario in easy default hard chain_reaction greedy_neighbor; do uv run python scripts/tune_hyperparameters.py --scenario $scenario --num-steps 50000 --n-trials 100 --n-jobs 4 --study-name tune_${scenario} --storage sqlite:///experiments/all_scenarios.db & done; wait
"""  # noqa: E501
# The commands get these at their end, where they win.
SHORT = "--n-trials 2 --num-steps 4096 --eval-interval 2048 --quiet"


@pytest.mark.long
def test_commands_tune_in_a_clone_as_printed(postgresql, tmp_path):
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", ROOT, clone)
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).with_name("uv")}" "$@" {SHORT}\n')
    uv.chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "UV_PYTHON": sys.executable}
    for line in TUNED.splitlines():
        command = line.replace("postgresql://user:pass@host/db", postgresql)
        run("bash", "-ec", command, cwd=clone, PYTHONPATH="", **given)
    # Of what runs in the background, only what it stored says how it ended.
    studies = f"sqlite:///{clone}/experiments/all_scenarios.db"
    for scenario in ("easy", "default", "hard", "chain_reaction", "greedy_neighbor"):
        assert len(trials_of(studies, f"tune_{scenario}")) == 2
    assert len(trials_of(postgresql, "distributed_tune")) == 2
