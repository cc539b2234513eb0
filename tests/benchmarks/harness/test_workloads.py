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


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            "num_envs = 10",
            "num_env = 10",
            "throughput.tiny: key 'num_env' is unknown; did you mean 'num_envs'?",
        ),
        (
            "num_envs = 10",
            "",
            "throughput.tiny lacks the key 'num_envs', a whole number of at least 1.",
        ),
        (
            "num_envs = 10",
            "num_envs = 0",
            "num_envs must be a whole number of at least 1, but got 0.",
        ),
        (
            "num_envs = 10",
            "num_envs = true",
            "num_envs must be a whole number of at least 1, but got True.",
        ),
        (
            "num_envs = 10",
            'num_envs = "10"',
            "num_envs must be a whole number of at least 1, but got '10'.",
        ),
        (
            'env = "cartpole-control"',
            "env = 1",
            "tiny.env must be the name of an environment or package.module:Class",
        ),
        ('env = "cartpole-control"', 'env = "a:b:c"', "or package.module:Class, but got 'a:b:c'."),
        (
            '"quick"',
            '"quik"',
            "throughput.tiny.tiers must be a list that may hold quick, full, but got ['quik'].",
        ),
        (
            '["quick"]',
            '"quick"',
            "throughput.tiny.tiers must be a list that may hold quick, full, but got 'quick'.",
        ),
        (
            '"cpu"',
            '"tpu"',
            "throughput.tiny.devices must be a list that may hold cpu, gpu, but got ['tpu'].",
        ),
        (
            "[throughput.tiny]",
            "[througput.tiny]",
            "suite 'througput' is unknown; did you mean 'throughput'?",
        ),
        ("[throughput.tiny]", "[throughput.tiny", "suite.toml is not valid TOML"),
        (
            "\n[throughput.tiny]",
            "throughput = 3\n[sanity_checks.x]",
            "throughput must be a table of tables, [throughput.<name>]",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(tmp_path, right, wrong, sentence):
    with pytest.raises(SuiteError) as error:
        read(tmp_path, WORKLOAD.replace(right, wrong, 1))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ('of = "gymnax"\nat_least = 2', "targets[0] lacks the key 'workload'"),
        (
            'workload = "tinny"\nof = "gymnax"\nat_least = 2',
            "target 'tinny' is unknown; did you mean 'tiny'?",
        ),
        (
            'workload = "tiny"\nof = "no-such-library"\nat_least = 2',
            "targets[0].of must be one of myriad, gymnax,",
        ),
        (
            'workload = "tiny"\nof = "gymnax"\nat_least = 0',
            "targets[0].at_least must be a number above 0, but got 0.",
        ),
    ],
)
def test_a_mistake_in_a_target_is_answered_in_one_sentence(tmp_path, target, sentence):
    with pytest.raises(SuiteError) as error:
        read(tmp_path, f"{WORKLOAD}\n[[targets]]\n{target}")
    assert sentence in str(error.value)


CHECK = """
[sanity_checks.cartpole-control]
agent = "random"
tolerance = 1
num_episodes = 10
"""


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            CHECK,
            "sanity_checks.cartpole-control must give either mean_episode_length or ",
        ),
        (
            f"{CHECK}mean_episode_length = 3\nmean_episode_return = 3",
            "sanity_checks.cartpole-control must give either mean_episode_length or ",
        ),
        (
            f'{CHECK}mean_episode_return = -3\nwaived.gymnaxx = "other rules"',
            "sanity_checks.cartpole-control.waived must be a table of texts whose keys may be",
        ),
        (
            "[env_ids.gymnas]\nx = 'y'",
            "library of env_ids 'gymnas' is unknown; did you mean 'gymnax'?",
        ),
        (
            "[env_ids]\ngymnax = 'CartPole-v1'",
            "env_ids.gymnax must be a table of environments and their names there",
        ),
        ("[peers.jumanji]", "peers.jumanji lacks the key 'requirements', a list of texts."),
        (
            "[peers.jumanji]\nrequirements = 'jumanji'",
            "peers.jumanji.requirements must be a list of texts, but got",
        ),
        (
            '[[targets]]\nworkload = "tiny"\nof = "gymnax"\nat_least_plain = 3\nrecord = true',
            "the target on tiny can't have at_least_plain beside of = 'myriad', than or record.",
        ),
    ],
)
def test_a_mistake_in_another_table_is_answered_in_one_sentence(tmp_path, table, sentence):
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
