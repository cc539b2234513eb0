"""Checkpoints are whole or not there, through kills, full disks, damage and other programs."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from myriad.engine.devices import arrays_by_name
from myriad.errors import InvalidArgumentError
from myriad.training import run_folder
from myriad.training.run_folder import Checkpoints
from tests.bits import assert_same_bits
from tests.child_processes import python


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
    checkpoints = Checkpoints(tmp_path, keep=3)
    for done in (8, 9, 10, 11):
        checkpoints.save(done, state_of(done))
    checkpoints.save(11, state_of(1))  # in place of the one before
    assert names(tmp_path) == ["10", "11", "9", "best_model", "saving-notes"]
    assert checkpoints.latest() == 11
    for done, number in ((9, 9), (11, 1)):
        assert_same(checkpoints.restore(done, state_of(0)), state_of(number))
    for done in (10, 11):
        change_a_bit(largest_file(tmp_path / str(done)))
    with pytest.raises(InvalidArgumentError, match=r"11 is damaged: .* go on from the one before"):
        newest(tmp_path)


def test_a_reader_takes_the_next_checkpoint_if_the_training_removes_its_own(tmp_path, monkeypatch):
    training = Checkpoints(tmp_path, keep=1)
    training.save(1, state_of(1))
    whole = Checkpoints._whole

    def slow(reader, number):
        path = whole(reader, number)
        if number == 1:
            training.save(2, state_of(2))
        return path

    monkeypatch.setattr(Checkpoints, "_whole", slow)
    state = newest(tmp_path)
    assert_same(state, state_of(2))
    assert names(tmp_path) == ["2"]
    assert newest(tmp_path / "none") is None


def test_a_checkpoint_from_a_device_that_is_not_here_still_restores(tmp_path):
    Checkpoints(tmp_path).save(5, state_of(1))
    saved_from = tmp_path / "5" / "_sharding"
    text = saved_from.read_text()
    assert "cpu:0" in text
    saved_from.write_text(text.replace("cpu:0", "cuda:0"))
    sums = json.loads((tmp_path / "5" / "checksums.json").read_text())
    sums["_sharding"] = run_folder._checksum(saved_from)
    (tmp_path / "5" / "checksums.json").write_text(json.dumps(sums))
    assert_same(Checkpoints(tmp_path).restore(5, state_of(0)), state_of(1))


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
        with pytest.raises(InvalidArgumentError, match=r"2 is damaged"):
            Checkpoints(damaged).rows(2)
        if damage is Path.unlink and file.name == "devices.json":
            assert Checkpoints(damaged).devices(2) == []  # Restoring names the damage.
        shutil.rmtree(damaged)


KILLED = """
import sys
from pathlib import Path
import jax.numpy as jnp, numpy as np
from myriad.training.run_folder import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.save(1, {"array": jnp.arange(8.0)})
# It takes a while to write.
noise = jnp.asarray(np.random.default_rng(0).random(20_000_000, np.float32))
print("saving", flush=True)
checkpoints.save(2, {"array": noise})
"""


@pytest.mark.slow
def test_a_save_that_a_kill_cuts_short_is_ignored_and_tidied_away(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "saving\n"
        while len(names(tmp_path)) == 1 and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL, "it came to its end before it could be killed"
    left = names(tmp_path)
    assert left[0] == "1"
    assert len(left) == 2
    checkpoints, like = Checkpoints(tmp_path), {"array": jnp.zeros(8)}
    assert checkpoints.latest() == 1
    assert_same(checkpoints.restore(1, like), {"array": jnp.arange(8.0)})
    checkpoints.save(2, like)
    assert names(tmp_path) == ["1", "2"]


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
