"""A run's folder is one process's, its metrics are strict JSON, and trackers' files can be read."""

import contextlib
import json
import math
import resource
import shutil
import struct
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from myriad import create_config, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.training.callbacks.trackers import TensorBoard, WeightsAndBiases, require_trackers
from myriad.training.results import History
from myriad.training.run_folder import RunFolder, lines_of, rows_of

ROWS = [
    {"update": 1, "loss": 0.1},
    {"update": 2, "loss": math.nan, "low": -math.inf},
    {"update": 3, "loss": math.inf},
]


def new_folder(path):
    return RunFolder.create(path, 'env = "cartpole"\n', {"versions": {}})


def strict(text):
    """Read JSON as the standard has it, which knows no NaN."""

    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


HOLD = """
import sys
from pathlib import Path
from myriad.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("in", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_one_processs_until_it_ends_or_is_killed(tmp_path, capsys):
    config = create_config("cartpole", "pid", num_envs=2, steps_per_env=64)
    folder = RunFolder.create(tmp_path / "run", config.to_toml(), {})
    new = ["train", "--env", "cartpole", "--agent", "pid", "--run-folder", str(folder.path)]
    pipe, command = subprocess.PIPE, [sys.executable, "-c", HOLD, str(folder.path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        for command in (["train", "--resume", str(folder.path)], new):
            assert main(command) == 2
            said = capsys.readouterr().err
            assert said.startswith(f"run folder {folder.path} is in use by another process")
        process.kill()
        process.wait(60)
    # It is held against the same process, too, and an error lets it go.
    with contextlib.suppress(ZeroDivisionError), folder.held():
        with pytest.raises(InvalidArgumentError, match="in use"):
            RunFolder(folder.path).held().__enter__()
        raise ZeroDivisionError
    with folder.held():
        pass
    # A linked lock leaves its target.
    (tmp_path / "target").write_text("kept")
    (tmp_path / ".lock").symlink_to(tmp_path / "target")
    with pytest.raises(InvalidArgumentError), RunFolder(tmp_path).held():
        pass
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize(
    ("there", "path", "says"),
    [
        ("config.toml", ".", "already holds a run: name another folder"),
        ("file", "file/run", "can't be written: Not a directory"),
        ("checkpoints/best_model/weights", ".", "already holds checkpoints"),
        (".lock", ".", "already holds .lock"),
    ],
)
def test_a_folder_that_can_not_be_a_new_run_is_refused_and_left_as_it_is(
    there, path, says, tmp_path
):
    file = tmp_path / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    before = {*tmp_path.rglob("*"), tmp_path / ".lock"}
    with pytest.raises(InvalidArgumentError, match=f"^run folder .* {says}"):
        new_folder(tmp_path / path)
    assert file.read_text() == "mine"
    assert {*tmp_path.rglob("*"), tmp_path / ".lock"} == before


def test_every_line_is_strict_json_and_reads_back_as_it_was(tmp_path):
    folder = new_folder(tmp_path / "run")
    for row in ROWS:
        folder.append(row)
    text = folder.metrics.read_text()
    assert [strict(line) for line in text.splitlines()][1:] == [
        {"update": 2, "loss": "NaN", "low": "-Infinity"},
        {"update": 3, "loss": "Infinity"},
    ]
    assert repr(rows_of(text)) == repr(ROWS)
    frame = pd.read_json(folder.metrics, lines=True)
    assert pd.to_numeric(frame["loss"]).tolist()[::2] == [0.1, math.inf]


@pytest.mark.parametrize(
    ("found", "number"),
    # Where there is none, it is made again from the checkpoint.
    [(lines_of(ROWS) + '{"update": 4, "lo', 3), (lines_of(ROWS), 0), (None, 3), (None, 0)],
)
def test_rows_are_those_of_the_checkpoint_again(found, number, tmp_path):
    folder = new_folder(tmp_path / "run")
    if found is not None:
        folder.metrics.write_text(found)
    folder.go_back_to(lines_of(ROWS[:number]))
    assert folder.metrics.exists() == (found is not None or number > 0)
    assert number == 0 or folder.metrics.read_text() == lines_of(ROWS[:number])


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\n", lines_of(ROWS).replace("loss", "lost", 1).encode()]
)
def test_rows_that_the_run_did_not_write_are_named_and_the_file_is_kept(content, tmp_path):
    folder = new_folder(tmp_path / "run")
    folder.metrics.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"is damaged: it doesn't begin with"):
        folder.go_back_to(lines_of(ROWS))
    assert folder.metrics.read_bytes() == content


def test_a_run_that_has_not_trained_is_discarded_and_one_that_has_is_not(tmp_path):
    early, late = (new_folder(tmp_path / name) for name in ("early", "late"))
    late.append(ROWS[0])
    for folder in (early, late):
        folder.discard()
    assert not early.path.exists()
    assert late.config_toml()


def test_a_disk_that_takes_no_more_leaves_what_was_written(tmp_path):
    folder = new_folder(tmp_path / "run")
    folder.append(ROWS[0])
    says = rf"^{folder.metrics} can't be written: File too large\.$"
    folder.append({"update": 4})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(InvalidArgumentError, match=says):
            folder.append({"update": 5, "a_long_name" * 90: 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    whole, _, _ = folder.metrics.read_text().rpartition("\n")
    assert [strict(line)["update"] for line in whole.splitlines()] == [1, 4]


def replaced(path):
    path.rename(path.with_name("elsewhere"))
    path.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lose", "step"), [(shutil.rmtree, "append"), (replaced, "append"), (shutil.rmtree, "flush")]
)
def test_a_folder_that_goes_away_ends_the_training_and_no_other_is_written(
    lose, step, tmp_path, monkeypatch
):
    do = getattr(RunFolder, step)

    def lose_it_first(*args):
        lose(tmp_path / "run")
        do(*args)

    monkeypatch.setattr(RunFolder, step, lose_it_first)
    config = create_config("cartpole-control", "random", 8, 64, eval_frequency=16)
    with pytest.raises(InvalidArgumentError, match="run was removed or moved while the run"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert not list(tmp_path.glob("run/*"))


def test_a_table_becomes_a_frame_with_every_column():
    table = History(ROWS)
    assert table.columns == ["update", "loss", "low"]
    assert table.to_pandas()["update"].dtype == "int64"


def test_a_table_prints_its_ends():
    assert repr(History(ROWS)).splitlines()[2].split() == ["2", "nan", "-inf"]
    long = repr(History([{"steps": 1_000 * i, "return": i / 7} for i in range(50)])).splitlines()
    assert [line.split()[0] for line in long[4:9]] == ["3,000", "4,000", "...", "45,000", "46,000"]
    assert repr(History([])) == "no rows yet"


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("tensorboardX.event_file_writer", lambda _: require_trackers(["tensorboard"])),
        ("wandb", lambda _: require_trackers(["wandb"])),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(module, use, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    name = module.partition("X.")[0]
    with pytest.raises(NotInstalledError, match=f"{name}.* pip install "):
        use(tmp_path)
    assert not list(tmp_path.iterdir())


def test_tensorboard_has_every_row_at_once(tmp_path):
    loader = pytest.importorskip("tensorboardX.proto.event_pb2").Event
    tracker = TensorBoard(folder := new_folder(tmp_path / "run"), {"seed": 0})
    for row in ROWS:
        tracker.log(row, 100 * row["update"])
    # before it is closed, as a viewer or a kill would find it
    (path,) = (folder.path / "tensorboard").iterdir()
    content, events = path.read_bytes(), []
    while content:  # A record is a length, its checksum, an event and its checksum.
        (length,) = struct.unpack("<Q", content[:8])
        events.append(loader.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    _, described, *rows = events
    assert described.summary.value[0].tensor.string_val == [b'    {\n      "seed": 0\n    }\n']
    assert [row.step for row in rows] == [100, 200, 300]
    read = {value.tag: value.simple_value for value in rows[0].summary.value}
    assert read == {"update": 1.0, "loss": pytest.approx(0.1)}
    tracker.close()


@pytest.mark.slow
def test_a_run_and_its_resumption_are_one_of_weights_and_biases_with_the_names_of_flags(
    tmp_path, monkeypatch
):
    started, rows = [], []

    def init(**given):
        started.append(given)
        (tmp_path / "run" / "wandb" / "offline-run-1-itsid").mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(log=lambda row, step: rows.append((step, row)), finish=list)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_PROJECT", "elsewhere")
    monkeypatch.setenv("WANDB_TAGS", "others")
    argv = ["train", "--env", "cartpole", "--agent", "pid", "--num-envs", "2", "--steps-per-env"]
    argv += ["8", "--wandb", "--wandb-project", "poles", "--wandb-name", "upright"]
    argv += ["--wandb-tags", "short", "fixed", "--run-folder", str(tmp_path / "run"), "--quiet"]
    assert main(argv) == 0
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    assert [given["id"] for given in started] == [None, "itsid"]
    for given in started:
        assert (given["project"], given["name"]) == ("poles", "upright")
        assert given["tags"] == ["short", "fixed"]
        assert "matmul precision" in str(given["config"]["settings"])
    assert [step for step, row in rows if "eval_return" in row][-1] == 16


def test_weights_and_biases_that_cannot_start_says_what_to_do(tmp_path, monkeypatch):
    def refuse(**given):
        raise ConnectionError("api_key not configured")

    wandb = SimpleNamespace(init=refuse, errors=SimpleNamespace(Error=ConnectionError))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    says = "log_to 'wandb' can't start: api_key .*; WANDB_MODE=offline needs no server"
    with pytest.raises(InvalidArgumentError, match=says):
        WeightsAndBiases(new_folder(tmp_path / "run"), {})
