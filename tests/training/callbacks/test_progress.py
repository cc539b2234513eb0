"""What takes long says so at once, and its seconds when it has ended."""

import re

import pytest

from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.files import announced

TRAIN = ["train", "--env", "cartpole", "--agent", "random", "--steps-per-env", "8"]
SMALL = ["--num-envs", "4", "--eval-rollouts", "2", "--eval-max-steps", "2"]


def test_what_fails_is_not_said_to_have_ended(capsys):
    with pytest.raises(InvalidArgumentError), announced("compiling"):
        raise InvalidArgumentError("no")
    assert capsys.readouterr().err == "compiling ...\n"


@pytest.mark.slow
def test_a_run_and_its_evaluation_say_what_they_compile_without_a_terminal(tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main([*TRAIN, *SMALL, "--run-folder", folder]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "random on cartpole: compiling ..."
    ready = r"random on cartpole, 4 environments: ready in [\d.]+ s"
    assert re.fullmatch(ready, lines[1])
    assert main(["evaluate", folder, "--episodes", "3"]) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first == "compiling and playing 3 episodes ..."
    assert re.fullmatch(r"compiling and playing 3 episodes: [\d.]+ s", last)
