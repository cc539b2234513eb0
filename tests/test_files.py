"""Files that would take for ever, and folders that are replaced meanwhile."""

import os
from pathlib import Path

import pytest

from myriad.cli import main
from myriad.files import user_path

TRAIN = ["train", "--env", "cartpole-control", "--agent", "random"]
TUNE = ["tune", "--env", "cartpole-control", "--n-trials", "0"]
# What reads each kind of file, and the file.
READERS = [
    (["envs"], ".env"),
    ([*TRAIN, "--config", "x.toml"], "x.toml"),
    ([*TUNE, "--space", "x.toml"], "x.toml"),
    ([*TUNE, "--warm-start", "x.json"], "x.json"),
    ([*TUNE, "--storage", "x.journal"], "x.journal"),
    (["autotune", "--show"], "home/autotune_profiles.json"),
    (["train", "--resume", "run"], "run/config.toml"),
]


def zeros(path):
    path.symlink_to("/dev/zero")


def nested(path):
    path.write_text("a = " + "[" * 400_000)


# Every file may be a pipe. The rest is one reader's, which all of them use.
CASES = [(*reader, os.mkfifo) for reader in READERS]
CASES += [(*READERS[1], make) for make in (nested, os.mkdir, zeros)]


@pytest.mark.parametrize(("command", "name", "make"), CASES)
def test_a_hostile_file_is_refused_at_once_in_one_sentence(
    command, name, make, tmp_path, monkeypatch, refused
):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    said = refused(*command)
    assert path.name in said
    assert said.count("\n") == 1


# What takes a user's path, and what it writes below the home folder.
WRITERS = [
    ([*TRAIN, "--quiet", "--steps-per-env", "64", "--num-envs", "4"], "--run-folder", ""),
    (TUNE, "--storage", "sqlite:///~/x.db"),
    (TUNE, "--output", ""),
    (["render", "--env", "snake", "--steps", "2"], "--output", "x.gif"),
]


@pytest.mark.parametrize(("command", "flag", "name"), WRITERS)
def test_a_tilde_is_the_home_folder_of_the_user(command, flag, name, tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    path = name if name.startswith("sqlite") else f"~/{name or 'x'}"
    main([*command, flag, path])
    assert (home / path.rpartition("/")[2]).exists(), capsys.readouterr().err
    assert not (tmp_path / "~").exists()
    assert user_path("~nobody-here/x") == Path("~nobody-here/x")


@pytest.mark.parametrize("name", ["\x1b[2Jx", "a\x9b1m"])
def test_a_path_that_would_steer_the_terminal_is_refused(name, refused):
    for command in ([*TRAIN, "--run-folder", name], [*TUNE, "--storage", name]):
        assert not set(name) & set("\x1b\x9b") & set(refused(*command))
