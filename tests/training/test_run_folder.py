"""A run's folder: one training's, its rows strict JSON, and its checkpoints whole or not there."""

import contextlib
import json
import math
import resource
import shutil
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from myriad import create_config, train_and_evaluate
from myriad.cli import main
from myriad.engine.devices import arrays_by_name
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.training import run_folder
from myriad.training.callbacks.trackers import TensorBoard, WeightsAndBiases, require_trackers
from myriad.training.results import History
from myriad.training.run_folder import Checkpoints, RunFolder, lines_of, rows_of
from tests.bits import assert_same_bits
from tests.child_processes import python

ROWS = [
    {"update": 1, "loss": 0.1},
    {"update": 2, "loss": math.nan, "low": -math.inf},
    {"update": 3, "loss": math.inf},
]


def new_folder(path):
    return RunFolder.create(path, 'env = "cartpole"\n', {"versions": {}})


@pytest.fixture
def folder(tmp_path):
    return new_folder(tmp_path / "run")


def strict(text):
    """Read JSON as the standard has it, which knows no NaN."""

    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def test_a_folder_is_one_trainings_until_it_ends(tmp_path, refused):
    config = create_config("cartpole", "pid", num_envs=2, steps_per_env=64)
    folder = RunFolder.create(tmp_path / "run", config.to_toml(), {})
    new = ["train", "--env", "cartpole", "--agent", "pid", "--run-folder", "run"]
    with contextlib.suppress(ZeroDivisionError), folder.held():
        said = refused("train", "--resume", "run")
        assert said.startswith("run folder run is in use by another process")
        assert "run folder run already holds a run" in refused(*new)
        raise ZeroDivisionError
    with folder.held():  # The error let it go, and a lock's file that is left holds nothing.
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


def test_every_line_is_strict_json_and_reads_back_as_it_was(folder):
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
    # What it lacks is made again from the checkpoint.
    [
        (lines_of(ROWS) + '{"update": 4, "lo', 3),
        (lines_of(ROWS), 0),
        (lines_of(ROWS)[:-9], 3),
        (None, 3),
        (None, 0),
    ],
)
def test_rows_are_those_of_the_checkpoint_again(found, number, folder):
    if found is not None:
        folder.metrics.write_text(found)
    folder.go_back_to(lines_of(ROWS[:number]))
    assert folder.metrics.exists() == (found is not None or number > 0)
    assert number == 0 or folder.metrics.read_text() == lines_of(ROWS[:number])


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\n", lines_of(ROWS).replace("loss", "lost", 1).encode()]
)
def test_rows_that_the_run_did_not_write_are_named_and_the_file_is_kept(content, folder):
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


def test_a_disk_that_takes_no_more_leaves_what_was_written(folder):
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


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), [(RunFolder, "append"), (Checkpoints, "save")])
def test_a_folder_that_goes_away_ends_the_training_and_is_not_made_again(
    kind, step, tmp_path, monkeypatch
):
    do = getattr(kind, step)

    def lose_it_first(*args):
        shutil.rmtree(tmp_path / "run")
        do(*args)

    monkeypatch.setattr(kind, step, lose_it_first)
    config = create_config("cartpole-control", "random", 8, 64, eval_frequency=16)
    with pytest.raises(InvalidArgumentError, match=r"can't be written.*: No such file"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_table_becomes_a_frame_with_every_column():
    table = History(ROWS)
    assert table.columns == ["update", "loss", "low"]
    assert table.to_pandas()["update"].dtype == "int64"


def test_a_table_prints_its_ends():
    assert repr(History(ROWS)).splitlines()[2].split() == ["2", "nan", "-inf"]
    long = repr(History([{"steps": 1_000 * i, "return": i / 7} for i in range(50)])).splitlines()
    assert [line.split()[0] for line in long[4:9]] == ["3,000", "4,000", "...", "45,000", "46,000"]
    assert repr(History([])) == "no rows yet"


# The doctor's tests have the other tracker.
def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    with pytest.raises(NotInstalledError, match=r"tensorboard.* pip install "):
        require_trackers(["tensorboard"])


def test_tensorboard_has_every_row_at_once(folder):
    loader = pytest.importorskip("tensorboardX.proto.event_pb2").Event
    tracker = TensorBoard(folder.path, {"seed": 0})
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


def test_weights_and_biases_that_cannot_start_says_what_to_do(folder, monkeypatch):
    def refuse(**given):
        raise ConnectionError("api_key not configured")

    wandb = SimpleNamespace(init=refuse, errors=SimpleNamespace(Error=ConnectionError))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    says = "log_to 'wandb' can't start: api_key .*; WANDB_MODE=offline needs no server"
    with pytest.raises(InvalidArgumentError, match=says):
        WeightsAndBiases(folder.path, {})


def state_of(number):
    return {
        "params": {"kernel": jnp.full((3, 4), number, jnp.bfloat16), "bias": jnp.arange(4.0)},
        "count": jnp.int32(number),
        "empty": jnp.zeros((0, 5)),
        "key": jax.random.key(number),
        "keys": jax.random.split(jax.random.key(number), 3),
        "no_keys": jax.random.split(jax.random.key(number), 0),
        "other_key": jax.random.key(number, impl="rbg"),
    }


def assert_same(left, right):
    assert jax.tree.map(jax.typeof, left) == jax.tree.map(jax.typeof, right)
    assert_same_bits(left, right)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def largest_file(checkpoint):
    return max(
        (path for path in checkpoint.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )


def newest(folder):
    checkpoints = Checkpoints(folder)
    return checkpoints.read_newest(lambda update: checkpoints.restore(update, state_of(0)))


def change_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


@pytest.mark.slow
def test_what_is_saved_comes_back_keys_and_empty_arrays_too(tmp_path):
    checkpoints, state = Checkpoints(tmp_path / "checkpoints"), state_of(7)
    assert checkpoints.latest() is None
    checkpoints.save(7, state, '{"update": 7}\n', devices=["2 CPU devices"])
    assert checkpoints.latest() == 7
    assert_same(checkpoints.restore(7, state), state)
    assert_same(checkpoints.restore(7, jax.eval_shape(lambda: state)), state)
    assert checkpoints.rows(7) == '{"update": 7}\n'
    assert checkpoints.devices(7) == ["2 CPU devices"]
    # Another program has a state of other shapes, dtypes or names.
    for change, says in (
        ({"count": jnp.zeros(2, jnp.int32)}, r"holds count as int32\[\], .* needs int32\[2\]"),
        ({"count": jnp.float32(0)}, r"holds count as int32\[\], .* needs float32\[\]"),
        ({"extra": jnp.zeros(3)}, r"holds extra as nothing, .* needs float32\[3\]"),
        ({"params": {}}, r"holds params.bias as float32\[4\], .* needs nothing"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            checkpoints.restore(7, state | change)
    with pytest.raises(InvalidArgumentError, match=r"best must be left out, since checkpoint .*7"):
        checkpoints.restore(7, state, best=True)
    best = {name: np.array(leaf) for name, leaf in arrays_by_name(state_of(5)).items()}
    del best["count"]
    checkpoints.save(8, state, best=best)
    assert_same(checkpoints.restore(8, state), state)
    assert_same(checkpoints.restore(8, state, best=True), state_of(5) | {"count": state["count"]})


def test_the_newest_by_number_are_kept_and_only_what_this_class_wrote_is_removed(tmp_path):
    for name in ("best_model", "saving-notes", "saving-3", "replaced-2", "saving-4.orbax-tmp-1"):
        (tmp_path / name).mkdir()
    checkpoints = Checkpoints(tmp_path)
    for done in (8, 9, 10, 11):
        checkpoints.save(done, state_of(done))
    checkpoints.save(11, state_of(1))  # in place of the one before
    assert names(tmp_path) == ["10", "11", "best_model", "saving-notes"]
    assert checkpoints.latest() == 11
    for done, number in ((10, 10), (11, 1)):
        assert_same(checkpoints.restore(done, state_of(0)), state_of(number))
    for done in (10, 11):
        change_a_bit(largest_file(tmp_path / str(done)))
    with pytest.raises(InvalidArgumentError, match=r"11 is damaged: .* go on from the one before"):
        newest(tmp_path)


def test_a_reader_takes_the_next_checkpoint_if_the_training_removes_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "_KEPT", 1)
    training = Checkpoints(tmp_path)
    training.save(1, state_of(1))
    kinds = Checkpoints.kinds

    def slow(reader, number):
        found = kinds(reader, number)
        if number == 1:
            training.save(2, state_of(2))
        return found

    monkeypatch.setattr(Checkpoints, "kinds", slow)
    state = newest(tmp_path)
    assert_same(state, state_of(2))
    assert names(tmp_path) == ["2"]
    assert newest(tmp_path / "none") is None


@pytest.mark.slow
@pytest.mark.parametrize("damage", [change_a_bit, Path.unlink, "null", "{}", '{"/cdbt": ""}'])
def test_any_damaged_file_is_named_in_a_sentence(damage, tmp_path):
    """A string is what the file of checksums says instead."""
    saved, damaged = Checkpoints(tmp_path / "saved"), tmp_path / "damaged"
    saved.save(2, state_of(2), "a row", devices=["2 CPU devices"])
    files = [path for path in (tmp_path / "saved" / "2").rglob("*") if path.is_file()]
    for file in files if callable(damage) else [tmp_path / "saved" / "2" / "checksums.json"]:
        shutil.copytree(tmp_path / "saved", damaged)
        copied = damaged / file.relative_to(tmp_path / "saved")
        damage(copied) if callable(damage) else copied.write_text(damage)
        with pytest.raises(InvalidArgumentError, match=r"2 is damaged: .* train anew"):
            newest(damaged)
        if damage is Path.unlink and file.name == "devices.json":
            assert Checkpoints(damaged).devices(2) == []  # Restoring names the damage.
        shutil.rmtree(damaged)


# Orbax leaves threads behind, so the disk of another process is full.
FULL = """
import resource, sys
from pathlib import Path
import jax
from myriad.training.run_folder import Checkpoints
from myriad.errors import InvalidArgumentError
noise = jax.random.normal(jax.random.key(0), (100_000,))
for limit in (10_000, 300, 0):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        Checkpoints(Path(sys.argv[1])).save(2, {"array": noise, "another": noise + 1})
    except InvalidArgumentError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_disk_that_takes_no_more_leaves_the_checkpoint_before(tmp_path):
    Checkpoints(tmp_path).save(1, state_of(1))
    lines = python("-c", FULL, tmp_path).stdout.splitlines()
    refusal = f"checkpoint {tmp_path / '2'} can't be written, and the ones before it are kept: "
    assert len(lines) == 3
    assert all(line.startswith(refusal) and "File too large" in line for line in lines)
    assert Checkpoints(tmp_path).latest() == 1
    assert_same(Checkpoints(tmp_path).restore(1, state_of(0)), state_of(1))
    # A thread of orbax may have written on while its folder was removed. The next save removes it.
    Checkpoints(tmp_path).save(3, state_of(3))
    assert names(tmp_path) == ["1", "3"]
