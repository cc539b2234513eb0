"""Programs: when they compile, and that nothing is begun which doesn't fit into memory."""

import json
import re
import resource

import jax.numpy as jnp
import pytest

from myriad import create_config, evaluate, load_agent, train_and_evaluate
from myriad.cli import main
from myriad.engine import memory
from myriad.errors import InvalidArgumentError
from myriad.training.compiled import CompiledTraining, shortage_named
from myriad.training.run_folder import rows_of
from tests.bits import assert_close
from tests.child_processes import python
from tests.compilations import count_compilations
from tests.training.small import flags_of

MIB = 1 << 20
SHORT = {"steps_per_env": 4, "eval_rollouts": 4, "eval_max_steps": 8, "env.max_steps": 8}


@pytest.fixture
def room(monkeypatch):
    """Return a function that leaves so many bytes to the process."""

    def leave(num_bytes):
        monkeypatch.setattr(memory, "host_memory", lambda: (num_bytes, num_bytes))

    return leave


def config_of(agent, **fields):
    return create_config("cartpole-control", agent, **(SHORT | fields))


def number(error, what):
    found = re.search(rf"at most about ([\d,]+) {what} fit", str(error.value))
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("agent", "fields", "says"),
    [
        ("random", {"num_envs": 20_000_000}, "; fewer than {} environments fit"),
        ("dqn", {"buffer_size": 10**8}, "; fewer than {} transitions of replay fit"),
        (
            "random",
            {"num_envs": 10**8, "eval_rollouts": 10**9},
            "than {} environments and {} episodes of an evaluation fit",
        ),
    ],
)
def test_what_could_never_fit_is_refused_from_shapes_with_the_number_that_fits(
    agent, fields, says, room, tmp_path, monkeypatch
):
    monkeypatch.setattr(CompiledTraining, "compile", lambda *_: pytest.fail("compiled"))
    config = config_of(agent, **fields)
    named = " and ".join(f".*{name} = {value:,}" for name, value in fields.items())
    says = f"^{named}.* need .* of memory, and 500 MiB are free.*" + says.format(*[r"[\d,]+"] * 2)
    for free, sentence in ((500 * MIB, says), (1, "not even one environment fits")):
        room(free)
        with pytest.raises(InvalidArgumentError, match=sentence):
            train_and_evaluate(config, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_fits_as_a_state_only_is_refused_and_the_number_named_is_taken(room, tmp_path):
    room(150 * MIB)
    asked = 900_000
    with pytest.raises(InvalidArgumentError, match="150 MiB are free") as refused:
        train_and_evaluate(config_of("random", num_envs=2 * asked), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    fits_in = number(refused, "environments")
    assert asked / 10 < fits_in < 2 * asked
    config = config_of("random", num_envs=fits_in)
    assert train_and_evaluate(config, tmp_path / "run", quiet=True).evaluations
    # So is an evaluation.
    config = config_of("random")
    room(100 * MIB)
    with pytest.raises(InvalidArgumentError, match=r"^2,000,000 episodes need .* 100 MiB") as said:
        evaluate(config, None, 2_000_000)
    fewer = number(said, "episodes")
    assert 0 < fewer < 2_000_000
    assert evaluate(config, None, fewer).shape == (fewer,)


def test_memory_that_runs_out_in_spite_of_the_prediction_is_a_sentence():
    with (
        pytest.raises(InvalidArgumentError, match=r"^memory ran out: .*leave.*RESOURCE_EXHAUSTED"),
        shortage_named(),
    ):
        jnp.zeros(1 << 50, jnp.uint8).block_until_ready()
    with pytest.raises(ZeroDivisionError), shortage_named():
        _ = 1 / 0


@pytest.mark.slow
def test_what_ulimit_leaves_is_what_there_is():
    script = """
import json, resource, sys
from myriad.host import host_memory
found, (limit, *kinds) = [], map(int, sys.argv[1:])
for kind in kinds:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    found.append(host_memory())
    resource.setrlimit(kind, before)
print(json.dumps(found))
"""

    kinds = resource.RLIMIT_AS, resource.RLIMIT_DATA
    for total, left in json.loads(python("-c", script, 400 * MIB, *kinds).stdout):
        assert total > 500 * MIB  # the machine stays the machine
        assert 300 * MIB < left < 400 * MIB


# A training of 8 steps that evaluates once. Without programs, each operation of each step of an
# optimiser is a call: few steps say as much.
SIZES = {"num_envs": 2, "steps_per_env": 8, "eval_frequency": 8, "eval_rollouts": 2}
SIZES |= {"eval_max_steps": 4, "rollout_steps": 4, "agent.num_epochs": 1}
SIZES |= {"agent.num_minibatches": 2, "agent.hidden_sizes": (8,)}
TINY = ["train", "--env", "cartpole", "--agent", "ppo", *flags_of(SIZES)]


@pytest.mark.slow
def test_programs_are_kept_for_the_next_training_of_any_seed_and_gravity(tmp_path):
    programs = tmp_path / "programs"

    def kept_after(*argv):
        command = ["-m", "myriad.cli", *TINY, "--quiet", *argv]
        python(*command, cwd=tmp_path, MYRIAD_COMPILATION_CACHE=str(programs))
        return {path.name for path in programs.glob("*-cache")}

    kept = kept_after()
    ours = ("jit_run", "jit_init", "jit__evaluate")
    assert sum(name.startswith(ours) for name in kept) == 3
    assert kept_after("--seed", "1", "--env.gravity", "12") == kept


@pytest.mark.slow
def test_a_training_may_compile_when_it_first_steps():
    training = CompiledTraining(create_config("cartpole", "ppo", **SIZES, compile_mode="cached"))
    with count_compilations() as compilations:
        training.compile()
    ours = ("jit(init)", "jit(run)", "jit(_evaluate)")
    assert not {*ours} & {*compilations}


@pytest.mark.slow
def test_without_programs_a_training_agrees_within_rounding_and_so_it_goes_on(tmp_path, capsys):
    runs = []
    for flag in ("--compile", "--compile-mode=off"):
        folder = tmp_path / flag
        with count_compilations() as compilations:
            assert main([*TINY, flag, "--run-folder", str(folder)]) == 0
        assert ("jit(run)" in compilations) == (flag == "--compile")
        rows = rows_of((folder / "metrics.jsonl").read_text())
        runs.append((load_agent(folder)[2].state, rows))
    said = capsys.readouterr().err
    assert "nothing is compiled" in said
    assert "compile off (--compile-mode)" in said
    # More updates would let rounding change an action, and then the course.
    (compiled, expected), (uncompiled, found) = runs
    assert_close(uncompiled, compiled, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5, nan_ok=True)
    assert main(["train", "--resume", str(folder)]) == 0
    assert "compile off (config.toml)" in capsys.readouterr().err
    assert 'compile_mode = "off"' in (folder / "config.toml").read_text()
