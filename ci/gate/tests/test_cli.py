"""The command line: what it lists, and how it answers what it does not know."""

from importlib.metadata import version

import pytest

from perfgate import cli

ACCEPT = ["accept", "x", "--reason", "y", "--expires"]


def test_help_lists_every_command_and_each_command_has_help(capsys):
    def printed(*argv):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0
        return capsys.readouterr().out

    for command in cli.COMMANDS:
        assert f"perfgate {command} " in printed("--help")
        assert printed(command, "--help").startswith(f"usage: perfgate {command} ")
    assert printed("--version") == f"perfgate {version('perfgate')}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["publish"], "perfgate has no command 'publish'; it has accept, history, comment"),
        (["acept"], "perfgate has no command 'acept'; did you mean 'accept'?"),
        ([], "the following arguments are required: --base"),
        (["--base", "main", "--pytest-args", "-k x"], "--pytest-args needs --pytest-benchmark"),
        (["--base", "main", "--pytest-args", "-k 'x"], "can't be split into words: No closing"),
        (["--base", "main", "--bench", "("], "'(' is not a valid regular expression"),
        (["--bas", "main"], "required: --base; perfgate --help lists the flags."),
        (["comment"], "--changed; perfgate comment --help lists the flags."),
        ([*ACCEPT, "2020-01-01"], "--expires must not be in the past, but got 2020-01-01."),
        ([*ACCEPT, "2999-01-01", "--ratio", "2", "--reason", " "], "accept: reason: "),
        ([*ACCEPT, "soon"], "argument --expires: invalid fromisoformat value: 'soon'"),
        (["history", "--results", "nope"], "--results must name a folder, but nope is none."),
        (["--base", "main", "--output", "/dev/null"], "--output /dev/null can't be written: File"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(capsys, argv, said):
    assert cli.main(argv) == 2
    answer = capsys.readouterr().err
    assert said in answer
    assert len(answer.splitlines()) == 1
