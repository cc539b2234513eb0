"""Where things are kept, also in a container whose user its system does not know."""

import pwd
from pathlib import Path

import pytest

from myriad import settings
from myriad.cli import main
from myriad.errors import InvalidArgumentError

VARIABLES = ("HOME", "XDG_CACHE_HOME", "MYRIAD_HOME", "MYRIAD_COMPILATION_CACHE")


@pytest.fixture
def nobody(monkeypatch):
    """Be a user without a home folder."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody")
def test_without_a_home_folder_a_training_keeps_no_programs_and_goes_on(tmp_path):
    assert settings.compilation_cache() is None
    run = ["train", "--env", "cartpole", "--agent", "pid", "--num-envs", "2"]
    run += ["--steps-per-env", "64", "--run-folder", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0


@pytest.mark.usefixtures("nobody")
def test_without_a_home_folder_the_autotuner_says_what_to_set(capsys):
    with pytest.raises(InvalidArgumentError):
        settings.home()
    assert main(["autotune", "--show"]) == 2
    assert capsys.readouterr().err == (
        "this user has no home folder to keep results in: set MYRIAD_HOME to a folder.\n"
    )


@pytest.mark.usefixtures("nobody")
def test_variables_name_the_folders_of_a_user_without_a_home(monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", "/kept")
    assert settings.home() == Path("/kept")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert settings.compilation_cache() == Path("/caches/myriad/xla")
    monkeypatch.setenv("MYRIAD_COMPILATION_CACHE", "off")
    assert settings.compilation_cache() is None
