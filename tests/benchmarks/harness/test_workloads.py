from dataclasses import replace

import pytest

from benchmarks.harness.workloads import SuiteError, load, tier_from_environment

WORKLOAD = """
[throughput.tiny]
env = "cartpole-control"
agent = "random"
num_envs = 10
scan_chunk_size = 5
tiers = ["quick"]
devices = ["cpu"]
"""


def read(folder, text):
    file = folder / "suite.toml"
    file.write_text(text)
    return load(file)


def test_the_full_tier_is_the_documented_matrix():
    full = load().select("throughput", "full").values()
    cartpole = [workload for workload in full if workload.env == "cartpole-control"]
    sizes = [(workload.num_envs, workload.scan_chunk_size) for workload in cartpole]
    assert sizes == [(100, 256), (1_000, 256), (10_000, 256), (100_000, 128), (1_000_000, 32)]


def test_the_quick_tier_is_part_of_the_full_one_and_begins_with_the_documented_default():
    quick, full = (load().select("throughput", tier) for tier in ("quick", "full"))
    assert set(quick) < set(full)
    assert min(workload.num_envs for workload in quick.values()) == 1_000


def test_every_other_environment_has_one_small_workload_in_the_quick_tier():
    quick = load().select("throughput", "quick").values()
    others = {
        workload.env: workload.num_envs for workload in quick if workload.env != "cartpole-control"
    }
    assert others == dict.fromkeys(
        ["pendulum-control", "gene-circuit-control", "snake", "bucket-brigade"], 1_000
    )


def test_every_declared_name_is_one_that_myriad_knows():
    from myriad import make_env

    declaration = load()
    for env in {workload.env for workload in declaration.workloads["throughput"].values()} | set(
        declaration.sanity_checks
    ):
        make_env(env)


def test_an_episode_of_a_fixed_length_fits_whole_into_a_chunk():
    steps = {
        "pendulum-control": 200,
        "gene-circuit-control": 288,
        "examples.my_environment:HillCar": 200,
    }
    for workload in load().workloads["throughput"].values():
        assert workload.scan_chunk_size % steps.get(workload.env, 1) == 0, workload.name


def targets_about(env):
    """Return an environment's targets: (environments, of, than how many) to (at least, plain)."""
    declaration = load()
    size = {
        name: workload.num_envs for name, workload in declaration.workloads["throughput"].items()
    }
    return {
        (size[target.workload], target.of, size[target.than] if target.than else None): (
            target.at_least,
            target.at_least_plain,
        )
        for target in declaration.targets_of(env)
    }


def test_the_targets_of_the_other_environments_are_those_promised():
    at_scale = (0.7, None)
    assert targets_about("pendulum-control") == {
        (n, "gymnax", None): (20, None) for n in (1_000, 10_000)
    } | {(1_000_000, "myriad", n): at_scale for n in (1_000, 10_000)}
    assert targets_about("gene-circuit-control") == {
        (n, "myriad-jax", None): (30, None) for n in (100, 1_000, 10_000)
    } | {(100_000, "myriad", n): at_scale for n in (100, 1_000, 10_000)}
    assert targets_about("snake") == {(n, "jumanji", None): (5, None) for n in (1_000, 10_000)} | {
        (1_000_000, "myriad", n): at_scale for n in (1_000, 10_000)
    }
    assert targets_about("bucket-brigade") == {
        (n, "numpy", 1): (None, None) for n in (1_000, 10_000)
    } | {(1_000_000, "myriad", n): at_scale for n in (1_000, 10_000)}
    assert targets_about("examples.my_environment:HillCar") == {
        (n, "gymnax", None): (7, 3) for n in (100, 1_000, 10_000, 100_000)
    }


def test_the_targets_of_cartpole_are_those_promised():
    declaration = load()
    targets = {
        (
            declaration.workloads["throughput"][target.workload].num_envs,
            target.record,
        ): target.at_least
        for target in declaration.targets_of("cartpole-control")
        if target.of == "gymnax"
    }
    stepped = {1: 15, 100: 80, 1_000: 100, 10_000: 60, 100_000: 60, 1_000_000: 45}
    recorded = {1_000: 10, 10_000: 10}
    assert targets == {(n, False): target for n, target in stepped.items()} | {
        (n, True): target for n, target in recorded.items()
    }
    flat = next(target for target in declaration.targets if target.than)
    assert (flat.workload, flat.than, flat.at_least) == ("cartpole-1m", "cartpole-10k-long", 0.7)


def test_a_workload_reads_as_it_is_written(tmp_path):
    (workload,) = read(tmp_path, WORKLOAD).select("throughput", "quick").values()
    assert (workload.name, workload.num_envs, workload.tiers, workload.num_steps) == (
        "tiny",
        10,
        ("quick",),
        None,
    )


CHECK = """
[sanity_checks.cartpole-control]
agent = "random"
tolerance = 1
num_episodes = 10
"""
NUMBER = "num_envs = 10"


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (NUMBER, "num_env = 10", "workloads.throughput.tiny.num_envs: Field required"),
        (NUMBER, f"{NUMBER}\nnum_env = 10", "throughput.tiny.num_env: Unexpected keyword"),
        (NUMBER, "num_envs = 0", "throughput.tiny.num_envs must be at least 1."),
        (NUMBER, "num_envs = true", "num_envs: Input should be a valid integer, but got True."),
        ('"quick"', '"quik"', "tiny.tiers.0: Input should be 'quick' or 'full', but got 'quik'."),
        ("[throughput.tiny]", "[througput.tiny]", "suite 'througput' is unknown; did you mean"),
        ("[throughput.tiny]", "[throughput.tiny", "suite.toml is not valid TOML"),
    ],
)
def test_a_mistake_in_a_workload_is_one_sentence(tmp_path, right, wrong, sentence):
    with pytest.raises(SuiteError) as error:
        read(tmp_path, WORKLOAD.replace(right, wrong, 1))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


TARGET = '[[targets]]\nworkload = "tiny"\nof = "gymnax"\nat_least'


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('[[targets]]\nof = "gymnax"', "targets.0.workload: Field required"),
        (TARGET.replace("tiny", "tinny") + " = 2", "target 'tinny' is unknown; did you mean"),
        (TARGET.replace("gymnax", "none") + " = 2", "library of a target 'none' is unknown"),
        (f"{TARGET} = 0", "targets.0.at_least: Input should be greater than 0, but got 0."),
        (f"{TARGET}_plain = 3\nrecord = true", "can't have at_least_plain beside of = 'myriad'"),
        (CHECK, "sanity_checks.cartpole-control must give either mean_episode_length or "),
        (
            f"{CHECK}mean_episode_length = 3\nmean_episode_return = 3",
            "sanity_checks.cartpole-control must give either mean_episode_length or ",
        ),
        (
            f'{CHECK}mean_episode_return = -3\nwaived.gymnaxx = "other rules"',
            "sanity_checks.cartpole-control.waived 'gymnaxx' is unknown",
        ),
        ("[env_ids.gymnas]\nx = 'y'", "library 'gymnas' is unknown; did you mean 'gymnax'?"),
        ("[peers.jumanji]", "peers.jumanji.requirements: Field required"),
    ],
)
def test_a_mistake_in_another_table_is_one_sentence(tmp_path, table, sentence):
    with pytest.raises(SuiteError) as error:
        read(tmp_path, f"{WORKLOAD}\n{table}")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_side_is_told_what_its_library_calls_the_environment():
    declaration = load()
    workload = declaration.workloads["throughput"]["pendulum-1k"]
    assert [declaration.env_id_of(side, workload) for side in ("gymnax", "gymnax-configured")] == [
        "Pendulum-v1"
    ] * 2
    assert (
        declaration.env_id_of("myriad-plain", workload)
        == declaration.env_id_of("jumanji", workload)
        == ""
    )


def test_myriad_tier_selects_and_quick_is_the_default():
    assert tier_from_environment({}) == "quick"
    assert tier_from_environment({"MYRIAD_TIER": ""}) == "quick"
    assert tier_from_environment({"MYRIAD_TIER": "full"}) == "full"
    with pytest.raises(
        SuiteError,
        match=r"MYRIAD_TIER 'ful' is unknown; did you mean 'full'\? allowed: quick, full\.",
    ):
        tier_from_environment({"MYRIAD_TIER": "ful"})


def test_a_sanity_check_holds_for_its_environment_and_agent_alone():
    declaration = load()
    workload = declaration.workloads["throughput"]["cartpole-1k"]
    assert declaration.sanity_check_of(workload).mean_episode_length == pytest.approx(22.2)
    assert declaration.sanity_check_of(replace(workload, agent="pid")) is None
