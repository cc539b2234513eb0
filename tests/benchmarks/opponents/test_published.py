"""The table of published results: its page is true to its file, and how its rows are made."""

import csv

import jax
import numpy as np
import pytest

from benchmarks import learning
from benchmarks.harness.process import ROOT
from benchmarks.opponents import published
from examples.published_environments import InvalidActions, PendulumNoVelocity
from myriad import check_env

FILE = ROOT / "results" / "published" / "returns_cpu.csv"


def test_the_page_shows_the_table_of_its_file_whose_rows_have_three_seeds():
    rows = published.read(FILE)
    names = [row["name"] for row in rows]
    assert set(names) <= set(published.declared())
    assert all(names.count(name) >= 3 for name in names)
    assert published.table(rows) in (FILE.parent / "README.md").read_text(encoding="utf-8")


def declare(monkeypatch):
    """Declare a row that loses and one that is within the published interval."""
    every = {
        name: published.Published(name, "e", "ppo", 10, "them", mean, std=4.0, episodes=4)
        for name, mean in (("close", 5.5), ("worse", 9.0))
    }
    monkeypatch.setattr(published, "declared", lambda: every)

    def train(self, seeds):
        for seed in seeds:
            yield {
                "name": self.name, "seed": seed, "steps": 10, "final_return": 2.0 * (seed - 100),
                "processor_s": 1.0, "device_name": "d", "commit": "c",
            }  # fmt: skip

    monkeypatch.setattr(published.Published, "train", train)


def test_rows_that_lose_stand_first_and_a_file_keeps_its_other_rows(monkeypatch, tmp_path, capsys):
    declare(monkeypatch)
    path = tmp_path / "returns.csv"
    for name in ("close", "worse"):
        flags = ["--published", name, "--output", str(path), "--force"]
        assert learning.main(flags) == 0
    lines = capsys.readouterr().out.split("| environment")[-1].splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:4]]
    assert [line[6] for line in cells] == ["no", "yes"]
    assert cells[1][3:5] == ["2.0 (-3.0 to 7.0), 3", "5.5 +- 3.9"]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["name"] for row in rows] == ["close"] * 3 + ["worse"] * 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:InvalidActions. a step that also resets")
@pytest.mark.parametrize("env", [InvalidActions(), PendulumNoVelocity()])
def test_the_environments_are_sound(env):
    check_env(env)


def test_each_step_has_as_many_legal_actions_as_declared_and_rewards_the_target_alone():
    env = InvalidActions()
    keys = jax.random.split(jax.random.key(0), 50)
    obs, state = jax.vmap(env.reset, (0, None))(keys, env.default_params)
    assert (np.asarray(state.legal).sum(axis=1) == 20).all()
    assert np.asarray(state.legal)[np.arange(50), np.asarray(state.target)].all()
    assert (np.asarray(obs).argmax(axis=1) == np.asarray(state.target)).all()
    step = jax.vmap(env.step, (0, 0, 0, None))
    assert np.asarray(step(keys, state, state.target, env.default_params)[2]).all()
    assert not np.asarray(step(keys, state, state.target ^ 1, env.default_params)[2]).any()
