"""Files that would take for ever, and folders that are replaced meanwhile."""

import os
import shutil

import pytest

from myriad.cli import main
from myriad.files import watched

TRAIN = ["train", "--env", "cartpole-control", "--agent", "random"]
TUNE = ["tune", "--env", "cartpole-control", "--n-trials", "0"]
# What reads each kind of file, and the file.
READERS = [
    (["envs"], ".env"),
    ([*TRAIN, "--config", "x.toml"], "x.toml"),
    ([*TUNE, "--space", "x.toml"], "x.toml"),
    ([*TUNE, "--warm-start", "x.json"], "x.json"),
    ([*TUNE, "--storage", "x.journal"], "x.journal"),
    (["cite", "x.csv"], "x.csv"),
    (["autotune", "--show"], "home/autotune_profiles.json"),
    (["train", "--resume", "run"], "run/config.toml"),
]


def nested(path):
    path.write_text("a = " + "[" * 400_000)


def zeros(path):
    path.symlink_to("/dev/zero")


def latin(path):
    path.write_bytes(b"env = '\xe9'")


def missing(path):
    pass


# Every file may be a pipe. The rest is one reader's, which all of them use.
CASES = [(*reader, os.mkfifo) for reader in READERS]
CASES += [(*READERS[1], make) for make in (nested, os.mkdir, zeros, latin, missing)]


@pytest.mark.parametrize(("command", "name", "make"), CASES)
def test_a_hostile_file_is_refused_at_once_in_one_sentence(
    command, name, make, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert path.name in said
    assert said.count("\n") == 1


def test_a_folder_is_told_from_one_made_in_its_place(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with watched(folder) as is_in_place:
        assert is_in_place()
        shutil.rmtree(folder)
        assert not is_in_place()
        folder.mkdir()  # Often with the number that is free now.
        assert not is_in_place()
