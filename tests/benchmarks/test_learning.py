"""The learning targets: how they are counted, and one of them kept at a reduced size."""

import jax
import pytest

import myriad
from benchmarks import learning
from benchmarks.harness.worker import ChildError


def run(first, final):
    return {"seed": 0, "first": first, "final_return": final}


def test_a_target_counts_what_was_in_time_and_what_held():
    target = learning.TARGETS[0]
    runs = [run(20_000, 500.0), run(60_000, 480.0), run(None, 100.0)]
    assert learning.kept(target, runs) == (1, 2)


class Trained:
    """Stands in for the training; the second target's is interrupted."""

    num_envs = 16

    def __init__(self, target):
        self.target = target

    def train(self, seed):
        if self.target is not learning.TARGETS[0]:
            raise KeyboardInterrupt
        return run(20_000, 500.0)


def test_what_was_trained_is_written_target_by_target(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(myriad, "configure", lambda: None)
    monkeypatch.setattr(learning, "Learning", Trained)
    assert learning.main(["--seeds", "2", "--output", str(tmp_path / "runs.csv")]) == 130
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    line = capsys.readouterr().out.splitlines()[-1]
    assert "| 2 of 2 by 50,000 | 500 to 500 | 2 of 2 at 475 after 150,000 |" in line


FOUND = {"num_envs": 4_096, "steps": 9_000, "seconds": 20.0, "evaluate_s": 1.0, "gains": 2.0}


def test_the_defaults_are_held_to_the_median_of_their_seeds(tmp_path, monkeypatch, capsys):
    """Two of three seeds that reach it are enough, and one is not."""

    def trained(target, request, *, timeout_s):
        fields = request["fields"]
        good = fields["seed"] != 0 and not (fields["agent"] == "dqn" and fields["seed"] == 1)
        return FOUND | {"steps_per_s": 3.0, "final_return": 500.0 if good else 100.0}

    monkeypatch.setattr(learning.process, "run", trained)
    argv = ["--num-envs", "4096", "--output", str(tmp_path / "runs.csv")]
    assert learning.main([*argv, "--agent", "ppo"]) == 0
    line = "| ppo | 4,096 environments | 3 | 9,000 | 20 (20) | 5% | 2.00 (2.00 to 2.00) | 500 |"
    assert line in capsys.readouterr().out
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 4
    assert learning.main([*argv, "--force"]) == 1


def test_a_training_that_dies_is_one_sentence(monkeypatch, capsys):
    def die(*args, **kwargs):
        raise ChildError("failed", "the process ended by signal 9: no message")

    monkeypatch.setattr(learning.process, "run", die)
    assert learning.main(["--num-envs", "16", "--agent", "ppo"]) == 2
    assert "signal 9" in capsys.readouterr().err


@pytest.mark.slow
def test_food_counts_without_the_penalty_of_dying():
    env = learning.Gains(myriad.make_env("snake", height=1, width=4))
    _, state = jax.jit(env.reset)(myriad.make_key(0), env.default_params)
    step = jax.jit(env.step)
    gains = [step(myriad.make_key(1), state, action, env.default_params)[2] for action in (0, 1)]
    assert gains[0] == 0  # a death, which costs 1 otherwise
    assert gains[1] in (0, 1)


@pytest.mark.slow
def test_each_network_that_you_name_is_a_row_with_its_own_fields(tmp_path, monkeypatch, capsys):
    short = {"rollout_steps": 8, "num_envs": 4, "eval_max_steps": 4, "agent.hidden_sizes": (8,)}
    monkeypatch.setattr(learning, "NUM_EPISODES", 4)
    fields = {"env": "cartpole-control", "agent": "pqn", "total_steps": 64, "seed": 0}
    row = learning.train(fields | short)  # one training is enough for both
    asked = []
    monkeypatch.setattr(
        learning.process, "run", lambda _, request, **__: asked.append(request["fields"]) or row
    )
    words = "--networks mlp cnn --seeds 1 --set gamma=0.9 --set cnn:num_envs=8"
    assert learning.main([*words.split(), "--output", str(tmp_path / "runs.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines[2:4]] == ["mlp", "cnn"]
    assert [(each["gamma"], each.get("num_envs")) for each in asked] == [(0.9, None), (0.9, 8)]
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
