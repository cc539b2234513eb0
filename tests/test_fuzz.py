"""Whatever is typed or written ends as promised: in exit code 0 or 2, or in our own error.

Each option of each command, agent and environment is given each wrong value, and each path that is
asked for each odd one. `make test` tries some of them, `make test-long` most.
"""

import dataclasses
import itertools
import math
import os
import random
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
import tomli_w

import myriad
from myriad import MyriadError, list_agents, list_envs, make_env
from myriad.agents import AGENTS
from myriad.cli import main
from myriad.cli.arguments import COMMANDS, load_command
from myriad.envs import ENVIRONMENTS
from myriad.settings import Settings
from myriad.training.config import TrainingConfig
from tests.learners import env_of

pytestmark = pytest.mark.slow
WORDS = ["abc", " ", "-1", "0", "nan", "-inf", "1e400", "1.5", "9" * 5000, "none", "true", "[]"]
WORDS += ["[1, 2]", "{a = 1}", '"', "\n", "1\nx = 2", "é", "0x10", "--env", "-", "--", "[" * 3000]
WORDS += ["1979-05-27", "x" * 10_000, "\x07", "\udcff", ""]
VALUES = [math.nan, -math.inf, 10**30, 1e39, 1.5, -1, 0, "abc", "", "\x07", True, [1, "a"], [], {}]
PATHS = ["notes", "notes/precious.txt", "missing/x", "/dev/null", "/dev/full", "/proc", "run"]
PATHS += ["run/config.toml", "x" * 300, "new folder", "out.gif", "/proc/x.gif", "bad.toml", "fifo"]
# Files that no command may touch.
FOREIGN = {"notes/precious.txt": "not yours", "notes/metrics.jsonl": "{}\n", "bad.toml": "env = ["}
SIZES = ["--num-envs=2", "--steps-per-env=8", "--eval-rollouts=2", "--eval-max-steps=8"]
TRAIN = ["train", "--env=cartpole", "--agent=random", "--quiet", *SIZES]
TUNE = ["tune", "--env=cartpole", "--n-trials=0", "--study-name=fuzzed", "--quiet"]
RENDER = ["render", "--env=cartpole", "--steps=2", "--output=out.gif", "--force"]
TAKE_PATHS = [
    *([*TRAIN, flag] for flag in ("--run-folder", "--start-from", "--config")),
    *([*TUNE, flag] for flag in ("--space", "--warm-start", "--output")),
    *(["train", "--resume"], [*RENDER[:-2], "--output"], ["evaluate"], ["plot"]),
    *(["export", "run", "--format=stablehlo", "--output"], ["export"], ["autotune", "--export"]),
]
SOME = pytest.mark.parametrize("most", [40, pytest.param(1_000, marks=pytest.mark.long)])


def some(most, *choices):
    """Return combinations of choices, in any order: all of them, or at most so many."""
    every = list(itertools.product(*choices))
    return random.Random(0).sample(every, min(most, len(every)))


@pytest.fixture
def _folder(tmp_path, monkeypatch):
    """Work beside files of others and a finished run, with a home of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))
    for name, text in FOREIGN.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    os.mkfifo("fifo")


def assert_ends_well(argv, capsys):
    """Run a command, which must do its work or refuse."""
    try:
        code = main(argv)
    except SystemExit as end:  # after its help
        code = end.code or 0
    said = capsys.readouterr().err
    # 1 if something can't be had.
    assert code in (0, 2) or (argv[0] in ("doctor", "settings") and code == 1), (argv, said)
    assert "Traceback" not in said


def understood(command):
    """Stand in for a command's work, which may be long."""
    if hasattr(command, "described"):
        command.described()


@pytest.mark.usefixtures("_folder")
@SOME
def test_a_flag_is_understood_or_refused(most, capsys):
    flags = [
        (command, field)
        for command in COMMANDS
        for field in dataclasses.fields(load_command(command))
    ]
    needed = {"train": TRAIN, "tune": TUNE, "render": RENDER} | {
        name: [name, "run"] for name in ("evaluate", "plot", "export")
    }
    for (command, field), word, joined in some(most, flags, WORDS, (False, True)):
        flag = f"--{field.name.replace('_', '-')}"
        argv = needed.get(command, [command])
        argv = [*argv, *([f"{flag}={word}"] if joined else [flag, word])]
        with mock.patch.object(load_command(command), "run", understood):
            assert_ends_well(argv, capsys)


@SOME
def test_a_configuration_is_a_training_or_is_refused(most):
    fields = [({}, "", each.name) for each in dataclasses.fields(TrainingConfig)]
    for name in list_agents():
        own = {"env": env_of(name), "agent": name}
        fields += [(own, "agent", each.name) for each in dataclasses.fields(AGENTS.load(name))]
    for name in list_envs():
        kinds = (ENVIRONMENTS.load(name), make_env(name).default_params)
        names = [each.name for kind in kinds for each in dataclasses.fields(kind)]
        fields += [({"env": name}, "env", each) for each in [*names, "surprise"]]
    for (own, owner, name), value in some(10 * most, fields, VALUES):
        given = {f"{owner}_options": {name: value}} if owner else {name: value}
        text = tomli_w.dumps({"env": "cartpole", "agent": "random"} | own | given)
        with suppress(MyriadError):
            TrainingConfig.from_toml(text, Path("mine.toml"))


@SOME
def test_a_setting_of_a_file_is_read_or_refused(most, tmp_path):
    names = [name for setting in Settings.table().values() for name in setting.names]
    forms = ["{}={}", "export {}={}", "{} = '{}'", '{}="{}"', "{} {}", "G=${{HOME}}\n{}={}", "='"]
    for name, word, form in some(10 * most, [*names, "MYRIAD_HOMEX"], WORDS, forms):
        text = form.format(name, word)
        (tmp_path / ".env").write_bytes(text.encode(errors="surrogateescape"))
        with suppress(MyriadError):
            Settings.read(tmp_path, {})


@pytest.mark.usefixtures("_folder")
@SOME
def test_a_path_is_used_or_refused_and_files_of_others_stay(most, capsys):
    config = myriad.create_config("cartpole", "random", 2, 8, eval_rollouts=2, eval_max_steps=8)
    myriad.train_and_evaluate(config, "run", quiet=True)
    foreign = [*FOREIGN, "run/config.toml"]
    before = [Path(name).read_bytes() for name in foreign]
    for words, path in some(most // 2, TAKE_PATHS, PATHS):
        assert_ends_well([*words, path], capsys)
        assert [Path(name).read_bytes() for name in foreign] == before, (words, path)
