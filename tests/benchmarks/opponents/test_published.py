"""The table of published results: its page is true to its file, and how its rows are made."""

import jax
import numpy as np
import pytest

from benchmarks import learning
from benchmarks.harness.process import ROOT
from benchmarks.harness.results import read_csv
from benchmarks.opponents import published
from examples.published_environments import (
    InvalidActions,
    PendulumNoVelocity,
    RepeatPrevious,
    TMaze,
)
from myriad import check_env

FILE = ROOT / "results" / "published" / "returns_cpu.csv"


def test_the_page_shows_the_table_of_its_file_whose_rows_have_three_seeds():
    rows = read_csv(FILE)
    names = [row["name"] for row in rows]
    assert set(names) <= set(published.declared())
    assert all(names.count(name) >= 3 for name in names)
    assert published.table(rows) in (FILE.parent / "README.md").read_text(encoding="utf-8")


def test_rows_that_lose_stand_first_and_a_file_keeps_its_other_rows(monkeypatch, tmp_path, capsys):
    every = {
        name: published.Published(name, "e", "ppo", 10, "them", mean, std=4.0, episodes=4)
        for name, mean in (("close", 5.5), ("worse", 9.0))
    }
    monkeypatch.setattr(published, "declared", lambda: every)

    def train(self, seeds):
        of_all = {"name": self.name, "steps": 10, "processor_s": 1.0, "device_name": "d"}
        for seed in seeds:
            yield of_all | {"seed": seed, "final_return": 2.0 * (seed - 100), "commit": "c"}

    monkeypatch.setattr(published.Published, "train", train)
    path = tmp_path / "returns.csv"
    for name in ("close", "worse"):
        flags = ["--published", name, "--output", str(path), "--force"]
        assert learning.main(flags) == 0
    lines = capsys.readouterr().out.split("| environment")[-1].splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:4]]
    assert [line[6] for line in cells] == ["no", "yes"]
    assert cells[1][3:5] == ["2 (-2.968 to 6.968), 3", "5.5 +- 3.9"]
    assert [row["name"] for row in read_csv(path)] == ["close"] * 3 + ["worse"] * 3


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*. a step that also resets")
@pytest.mark.parametrize("env", [InvalidActions(), PendulumNoVelocity(), RepeatPrevious(), TMaze()])
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


def test_the_suit_of_the_fourth_last_card_is_rewarded_from_the_fourth_card_on():
    env, key, total = RepeatPrevious(), jax.random.key(0), 0.0
    step = jax.jit(env.step)
    obs, state = env.reset(key, env.default_params)
    seen, ends = [int(obs.argmax())], False
    while not ends:
        action = jax.numpy.int32(seen[max(len(seen) - 4, 0)])
        obs, state, reward, ends, _, _ = step(key, state, action, env.default_params)
        assert float(reward) == pytest.approx(1 / 48 if len(seen) >= 4 else 0)
        seen.append(int(obs.argmax()))
        total += float(reward)
    assert total == pytest.approx(1)
    assert [seen.count(suit) for suit in range(4)] == [13] * 4
