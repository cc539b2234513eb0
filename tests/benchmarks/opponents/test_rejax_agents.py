"""The comparison with rejax: its judge, its table, its questions, and both libraries."""

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.harness import peers
from benchmarks.opponents import rejax_agents
from benchmarks.opponents.rejax_agents import Question


def judge_of(env, agent="ppo", *, normalized=False):
    return rejax_agents._judge(Question(env, agent, 1, None, ()), normalized=normalized)


def runs(library, *returns, seconds=2.0):
    return [
        {"library": library, "steps": 1_000, "seconds": seconds, "final_return": final}
        for final in returns
    ]


def layer(kernel, bias):
    """Return a policy of one layer, as rejax's process writes it."""
    return {
        "kernel0": np.array(kernel, np.float32),
        "bias0": np.array(bias, np.float32),
        "mean": np.array([0, 0, 1, 0], np.float32),
        "var": np.array([1, 1, 4, 1], np.float32),
    }


def test_the_judge_takes_the_best_action_and_normalises_where_the_network_learned_so():
    judge = judge_of("CartPole-v1")
    assert 8 < judge(layer(np.zeros((4, 2)), [1, 0])) < 11  # always to the left
    # Push to the side to which the pole leans and falls.
    assert judge(layer([[0, 0], [0, 0], [0, 1], [0, 1]], [0, 0])) > 100
    judge = judge_of("CartPole-v1", normalized=True)
    # The mean that is taken off is given back by the bias, the deviation by the weight.
    assert judge(layer([[0, 0], [0, 0], [0, 2], [0, 1]], [0, 1])) > 100


def test_hidden_layers_bend_and_continuous_actions_stay_within_the_box():
    judge = judge_of("Pendulum-v1")
    hidden = {"kernel0": np.zeros((3, 8), np.float32), "bias0": np.full(8, -100, np.float32)}
    last = {"kernel1": np.ones((8, 1), np.float32), "bias1": np.full(1, 50, np.float32)}
    clipped = last | {"bias1": np.full(1, 2, np.float32)}
    moments = {"mean": np.zeros(3, np.float32), "var": np.ones(3, np.float32)}
    far, at_the_bound = (float(judge(hidden | each | moments)) for each in (last, clipped))
    assert far == pytest.approx(at_the_bound, rel=1e-6)
    # The mean of SAC's Gaussian is bent to the box: 50 to its bound, and 0 to its middle.
    judge = judge_of("Pendulum-v1", "sac")
    middle = last | {"bias1": np.zeros(1, np.float32)}
    assert float(judge(hidden | last | moments)) == pytest.approx(far, rel=1e-6)
    assert float(judge(hidden | middle | moments)) != pytest.approx(far, rel=0.01)


def test_a_row_has_both_libraries_and_the_interval_of_the_difference():
    both = [*runs("myriad", 500, 490, 480), *runs("rejax", 470, 480, 490, seconds=4.0)]
    found = rejax_agents.cells("CartPole-v1", "ppo", both)
    assert found[2:5] == ["490.0 (480.0 to 500.0)", "1,000", "2"]
    # Welch's interval of two samples with a deviation of 10: 10 +- 2.776 x 8.165.
    assert found[-2:] == ["+10.0 (-12.7 to +32.7)", "2.00 (2.00 to 2.00)"]


def test_every_hyperparameter_is_one_of_ours():
    for agent, values in rejax_agents.HYPERPARAMETERS.items():
        env = "Pendulum-v1" if agent == "sac" else "Catch-bsuite"
        question = Question(env, agent, 10_000, None, (0,))
        assert question.hyperparameters.get("normalize_observations", False) is False
        config = rejax_agents.config_of(question, 10_000)
        learner = vars(config.learner) | {"num_envs": config.num_envs}
        expected = question.hyperparameters | rejax_agents.OF_REJAX[agent]
        assert {name: learner[name] for name in expected} == expected
        assert set(values) <= set(learner)


def test_a_missing_peer_is_one_sentence_before_anything_trains(monkeypatch, capsys):
    monkeypatch.setattr(rejax_agents, "ours", lambda question: pytest.fail("it began"))
    monkeypatch.setattr(peers, "is_installed", lambda name: False)
    assert learning.main(["--against", "rejax"]) == 2
    said = capsys.readouterr().err
    assert "benchmarks.harness.peers install rejax" in said
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not peers.is_installed("rejax"), reason="rejax is not installed")
@pytest.mark.parametrize(
    ("env", "agent"), [("CartPole-v1", "dqn"), ("Pendulum-v1", "ppo"), ("Pendulum-v1", "sac")]
)
def test_rejax_s_policies_come_back_and_are_judged(env, agent):
    found = list(rejax_agents.theirs(Question(env, agent, 4_096, None, (0, 1))))
    assert [run["library"] for run in found] == ["rejax", "rejax"]
    assert found[0]["final_return"] != found[1]["final_return"]
