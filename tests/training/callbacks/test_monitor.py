"""The monitor, films and traces: each at its interval, none in the way of the results."""

import json

import pytest

from myriad import train_and_evaluate
from myriad.cli import main
from myriad.training.callbacks import PHASES
from tests.training.small import PPO, SIZES, flags_of, small_config

# Ten evaluations, in the programs of the small training.
TEN = {"steps_per_env": 80, "eval_frequency": 8}


def train(folder, **options):
    return train_and_evaluate(small_config(**TEN | options), folder, quiet=True)


@pytest.mark.slow
def test_rows_films_and_what_trackers_get_come_at_their_intervals_and_change_nothing(tmp_path):
    pytest.importorskip("tensorboardX")
    watched, plain = tmp_path / "watched", tmp_path / "plain"
    train(watched, monitor_every=3, film_every=4, log_to=["tensorboard"])
    lines = (watched / "monitor.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [row["update"] for row in found] == [3, 6, 9]
    for row in found:
        shares = [row[f"{name}_share"] for name in (*PHASES, "host")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
        assert row["steps_per_s"] > 0
        assert 0 < row["device_utilisation"] <= 1
        assert row["process_memory_bytes"] > 1 << 20
    films = sorted(watched.glob("films/*.gif"), key=lambda path: int(path.stem))
    assert [int(path.stem) for path in films] == [4, 8]
    assert all(path.read_bytes().startswith(b"GIF8") for path in films)
    events = b"".join(path.read_bytes() for path in (watched / "tensorboard").iterdir())
    assert events.count(b"monitor/train_share") == 3
    train(plain, monitor_every=0)
    one, other = ((folder / "metrics.jsonl").read_bytes() for folder in (watched, plain))
    assert one == other
    left_out = {"monitor.jsonl", "films", "tensorboard"}
    assert not left_out & {path.name for path in plain.iterdir()}
    assert left_out <= {path.name for path in watched.iterdir()}


@pytest.mark.slow
def test_a_profile_holds_a_trace_and_the_command_says_how_large_it_is(tmp_path, capsys):
    for agent, fields in (("ppo", SIZES | PPO | TEN), ("pid", SIZES | TEN)):
        folder = tmp_path / agent
        command = ["train", "--env", "cartpole-control", "--agent", agent, *flags_of(fields)]
        assert main([*command, "--run-folder", str(folder), "--profile", "1", "--quiet"]) == 0
        said = "".join(capsys.readouterr())
        (trace,) = folder.glob("profile/**/perfetto_trace.json.gz")
        assert f"{trace}: {trace.stat().st_size / 2**20:.1f} MiB" in said
