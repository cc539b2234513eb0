"""A file that exists is replaced only where the user asked for it."""

import importlib

import pytest

from benchmarks.harness.results import ROOT
from benchmarks.runner import Script

SCRIPTS = [
    path.stem
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "SCRIPT = Script(" in (text := path.read_text()) and '"--output"' not in text
]


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
