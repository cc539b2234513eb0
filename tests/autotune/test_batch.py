"""The batch tuner: what it measures, what it chooses, and the file that it writes."""

import pytest

from myriad import create_config
from myriad.autotune import batch
from myriad.autotune.batch import BatchRate, measure_arms, smallest_near_best, with_batch
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.host import resident_bytes


def rate(size, rows_per_s, refused=""):
    return BatchRate(size, rows_per_s, rows_per_s, rows_per_s, 1 << 20, refused)


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ([(128, 10.0), (256, 96.0), (512, 97.0), (1024, 100.0)], 512),
        ([(128, 98.0), (256, 100.0)], 128),
        ([(128, 95.0), (256, 90.0), (512, None)], 128),
    ],
)
def test_the_smallest_batch_near_the_best_is_chosen(rates, chosen):
    assert smallest_near_best([rate(*each) for each in rates]).batch_size == chosen


def test_nothing_that_fits_is_an_error_that_says_what_is_missing():
    with pytest.raises(InvalidArgumentError, match="128 rows needs 1 GiB"):
        smallest_near_best([rate(128, None, "needs 1 GiB, and 1 MiB are free")])


@pytest.mark.parametrize("agent", ["ppo", "pqn", "dqn"])
def test_a_gradient_step_takes_as_many_rows_as_are_asked_for(agent):
    size = 16_384
    config = with_batch(create_config("cartpole-control", agent), size)
    rows = config.batch_size
    if rows is None:
        rows = config.num_envs * config.rollout_steps // config.agent_options["num_minibatches"]
    assert rows == size


@pytest.mark.slow
@pytest.mark.parametrize("agent", [pytest.param("ppo", marks=pytest.mark.long), "dqn"])
def test_sizes_are_timed_and_what_does_not_fit_is_refused_before_it_runs(agent):
    config = create_config("cartpole-control", agent, **{"agent.hidden_sizes": (8,)})
    (alone,) = measure_arms({"": config}, [128], rounds=6)[""]
    # What the process holds already counts, too.
    limit = resident_bytes() + alone.memory_bytes + (200 << 20)
    lines = []
    small, large = measure_arms(
        {"": config}, [128, 4_194_304], rounds=6, memory_limit=limit, on_size=lines.append
    )[""]
    assert [line.split()[0] for line in lines] == ["128", "4,194,304"]
    assert small.low <= small.rows_per_s <= small.high
    assert small.memory_bytes < large.memory_bytes
    assert large.rows_per_s is None
    assert "are free" in large.refused


def test_the_command_writes_to_env_where_you_name_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = [rate(128, 99.0), rate(256, 100.0)]
    monkeypatch.setattr(batch, "measure_arms", lambda *args, **kwargs: {"": found})
    command = ["autotune", "--env", "cartpole-control", "--agent", "ppo", "--tune", "batch"]
    assert main([*command, "--write-env"]) == 0
    assert (tmp_path / ".env").read_text() == "OPTIMAL_BATCH_SIZE=128\n"
    assert "128 rows: 99 rows/s (99 to 99)  <- chosen" in capsys.readouterr().out
    other = tmp_path / "other.env"
    other.write_text("# mine\nSECRET=1\nexport OPTIMAL_BATCH_SIZE = 7  \nBAR=2 # two")
    other.chmod(0o600)
    (tmp_path / "linked.env").symlink_to(other)
    assert main([*command, "--write-env", "linked.env"]) == 0
    assert other.read_text() == "# mine\nSECRET=1\nOPTIMAL_BATCH_SIZE=128\nBAR=2 # two"
    assert other.stat().st_mode & 0o777 == 0o600
