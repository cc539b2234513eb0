"""The batch tuner: what it measures, what it chooses, and the file that it writes."""

import pytest

from myriad import create_config
from myriad.autotune import batch
from myriad.autotune.batch import (
    VARIABLE,
    BatchRate,
    measure_batches,
    smallest_near_best,
    with_batch,
    write_batch_size,
)
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.host import resident_bytes
from myriad.settings import variables_in

CONFIG = create_config("cartpole-control", "ppo", **{"agent.hidden_sizes": (8,)})


# In a process of its own: memory that others gave back would serve the measurement again.
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
    (alone,) = measure_batches(config, [128], rounds=6)
    # What the process holds already counts, too.
    limit = resident_bytes() + alone.memory_bytes + (200 << 20)
    lines = []
    small, large = measure_batches(
        config, [128, 524_288], rounds=6, memory_limit=limit, on_size=lines.append
    )
    assert [line.split()[0] for line in lines] == ["128", "524,288"]
    assert small.low <= small.rows_per_s <= small.high
    assert small.memory_bytes < large.memory_bytes
    assert large.rows_per_s is None
    assert "are free" in large.refused


FILE = "# mine\nFOO=1\n\nexport OPTIMAL_BATCH_SIZE = 7  \nBAR=2 # two"


@pytest.mark.parametrize("text", ["", FILE])
def test_other_lines_of_the_file_stay(tmp_path, text):
    file = tmp_path / ".env"
    if text:
        file.write_text(text)
    write_batch_size(file, 512, CONFIG)
    written = file.read_text()
    variables = variables_in(written, file)
    assert variables[VARIABLE] == "512"
    kept = [line for line in text.split("\n") if line and VARIABLE not in line]
    assert [line for line in written.split("\n") if line and VARIABLE not in line] == kept
    assert "ppo on cartpole-control" in variables[f"{VARIABLE}_TUNED_FOR"]


def test_a_file_behind_a_link_keeps_its_mode(tmp_path):
    file = tmp_path / "shared.env"
    file.write_text("SECRET=1\n")
    file.chmod(0o600)
    (tmp_path / ".env").symlink_to(file)
    write_batch_size(tmp_path / ".env", 512, CONFIG)
    assert file.read_text().startswith("SECRET=1\nOPTIMAL_BATCH_SIZE=512\n")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_value_that_was_tuned_for_something_else_is_named(tmp_path):
    file = tmp_path / ".env"
    assert write_batch_size(file, 512, CONFIG) is None
    assert write_batch_size(file, 256, CONFIG) is None
    file.write_text(file.read_text().replace("ppo on", "dqn on"))
    warning = write_batch_size(file, 128, CONFIG)
    assert "OPTIMAL_BATCH_SIZE=256, tuned for dqn on cartpole-control" in str(warning)
    file.write_text("OPTIMAL_BATCH_SIZE=64\n")
    assert "not tuned: it is replaced" in str(write_batch_size(file, 128, CONFIG))


def test_the_command_writes_to_env_where_you_name_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = [rate(128, 99.0), rate(256, 100.0)]
    monkeypatch.setattr(batch, "measure_batches", lambda *args, **kwargs: found)
    command = ["autotune", "--env", "cartpole-control", "--agent", "ppo", "--tune", "batch"]
    assert main([*command, "--write-env"]) == 0
    assert "OPTIMAL_BATCH_SIZE=128\n" in (tmp_path / ".env").read_text()
    assert "128 rows: 99 rows/s (99 to 99)  <- chosen" in capsys.readouterr().out
    assert main([*command, "--write-env", "other.env"]) == 0
    assert (tmp_path / "other.env").exists()
    (tmp_path / "notes.txt").write_text("some notes")
    assert main([*command, "--write-env", "notes.txt"]) == 2
    assert (tmp_path / "notes.txt").read_text() == "some notes"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tune", "batch", "--write-env", "."], "can't be written"),
        (["--write-env", "x.env"], "--write-env writes a batch, so it needs --tune batch"),
        (["--agent", "random", "--tune", "batch", "--write-env"], "random learns from no batches"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    arguments, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    command = ["autotune", "--env", "cartpole-control", "--agent", "ppo"]
    assert main([*command, *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
