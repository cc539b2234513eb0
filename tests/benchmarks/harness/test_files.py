"""A file that a suite leaves is whole, or it is the old one."""

import importlib

import pytest

from benchmarks.harness.files import replacing, write_text
from benchmarks.harness.results import ROOT
from benchmarks.runner import Script
from myriad.errors import InvalidArgumentError

SCRIPTS = [
    path.stem
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "SCRIPT = Script(" in (text := path.read_text()) and '"--output"' not in text
]


def test_a_text_replaces_the_old_file_with_its_own_line_endings(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    write_text(path, "a,b\r\n1,2\r\n")
    assert path.read_bytes() == b"a,b\r\n1,2\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    def write_half():
        with replacing(path) as part:
            part.write_text("ne")
            raise OSError("disk full")

    path = tmp_path / "plot.png"
    path.write_text("old")
    with pytest.raises(InvalidArgumentError, match=r"plot\.png can't be written: disk full\."):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["mine.csv", "mine_samples.json"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_file_that_exists_is_replaced_only_by_force(script, name, tmp_path, capsys):
    path = tmp_path / name
    path.write_text("mine")
    main = importlib.import_module(f"benchmarks.{script}").main
    assert main(["--output", str(tmp_path / "mine.csv")]) == 2
    assert f"{path} exists" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_an_empty_file_a_folder_and_a_forced_file_are_written(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "mine.csv").write_text("mine")
    for flags in (["empty.csv"], ["."], ["new.csv"], ["mine.csv", "--force"]):
        script = Script("script", "A script.", lambda run: None)
        assert script.parse(["--output", str(tmp_path / flags[0]), *flags[1:]])
