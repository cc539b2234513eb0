"""Tests keep what they compile where the next run finds it, and remove nothing else."""

import os

import pytest

from tests.kept_programs import FORGOTTEN_S, folder_for_programs, forget_old_programs


def test_the_folder_is_the_same_for_every_clone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folders = {folder_for_programs(tmp_path / clone) for clone in ("one", "two")}
    assert folders == {tmp_path / "caches" / "myriad" / "tests"}


@pytest.mark.parametrize("caches", ["", "relative"])
def test_without_a_folder_of_caches_it_is_in_the_home(caches, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", caches)
    folder = folder_for_programs(tmp_path / "clone")
    assert folder == tmp_path / ".cache" / "myriad" / "tests"


def test_where_the_user_can_write_nowhere_it_is_in_the_clone(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = folder_for_programs(tmp_path / "clone")
    assert folder == tmp_path / "clone" / ".pytest_cache" / "xla"
    assert folder.is_dir()


def test_only_old_and_empty_programs_are_removed(tmp_path):
    for name in ("old-cache", "old.txt", "new-cache"):
        (tmp_path / name).write_text("a program")
    (tmp_path / "empty-cache").touch()
    for path in tmp_path.glob("old*"):
        os.utime(path, (0, path.stat().st_mtime - FORGOTTEN_S - 60))
    forget_old_programs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"old.txt", "new-cache"}
