import pytest

from benchmarks.harness.workloads import SuiteError, load
from myriad import make_env

WORKLOAD = """
[throughput.tiny]
env = "cartpole-control"
agent = "random"
num_envs = 10
scan_chunk_size = 5
tiers = ["quick"]
"""


def test_every_environment_is_known_and_its_episode_of_a_fixed_length_fits_whole_into_a_chunk():
    steps = {
        "pendulum-control": 200,
        "gene-circuit-control": 288,
        "examples.my_environment:HillCar": 200,
    }
    for env in load().sanity_checks:
        make_env(env)
    for workload in load().workloads["throughput"].values():
        make_env(workload.env)
        assert workload.scan_chunk_size % steps.get(workload.env, 1) == 0, workload.name


CHECK = """
[sanity_checks.cartpole-control]
agent = "random"
tolerance = 1
num_episodes = 10
"""
TARGET = '[[targets]]\nworkload = "tiny"\nof = "gymnax"\nat_least'
NUMBER = "num_envs = 10"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORKLOAD.replace(NUMBER, f"{NUMBER}\nnum_env = 10"), "throughput.tiny.num_env"),
        (WORKLOAD.replace(NUMBER, "num_envs = 0"), "throughput.tiny.num_envs must be at least 1"),
        (WORKLOAD.replace("throughput", "througput"), "'througput' is unknown; did you mean"),
        (WORKLOAD.replace("tiny]", "tiny"), "suite.toml is not valid TOML"),
        (f'{WORKLOAD}[[targets]]\nof = "gymnax"', "targets.0.workload"),
        (f"{WORKLOAD}{TARGET} = 2".replace('"tiny"', '"tinny"'), "target 'tinny' is unknown"),
        (f"{WORKLOAD}{TARGET} = 2".replace("gymnax", "none"), "of a target 'none' is unknown"),
        (WORKLOAD + CHECK, "must give either mean_episode_length or "),
        (
            f'{WORKLOAD}{CHECK}mean_episode_return = -3\nwaived.gymnaxx = "other rules"',
            "sanity_checks.cartpole-control.waived 'gymnaxx' is unknown",
        ),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "suite.toml"
    file.write_text(text)
    with pytest.raises(SuiteError) as error:
        load(file)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
