"""The command line: what it lists, and how it answers what it does not know."""

from importlib.metadata import version

import pytest

from perfgate import cli


def test_help_lists_every_command_and_each_command_has_help(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    listed = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"perfgate {command} " in listed
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: perfgate {command} ")


def test_the_version_is_that_of_the_installed_package(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"perfgate {version('perfgate')}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["publish"], "perfgate has no command 'publish'; it has accept, history, comment"),
        (["acept"], "perfgate has no command 'acept'; did you mean 'accept'?"),
        ([], "the following arguments are required: --base"),
        (["--base", "main", "--budget", "-1"], "must be seconds of at least 0, but got '-1'"),
        (["--base", "main", "--pytest-args", "-k x"], "--pytest-args needs --pytest-benchmark"),
        (["--base", "main", "--pytest-args", "-k 'x"], "can't be split into words: No closing"),
        (["--base", "main", "--bench", "("], "'(' is not a valid regular expression"),
        (["--bas", "main"], "required: --base; perfgate --help lists the flags."),
        (["history", "--jsno"], "perfgate history --help lists the flags."),
        (["comment"], "--changed; perfgate comment --help lists the flags."),
        (
            ["accept", "x", "--reason", "y", "--expires", "2020-01-01", "--ratio", "2"],
            "--expires must not be in the past, but got 2020-01-01.",
        ),
        (
            ["accept", "x", "--reason", " ", "--expires", "2999-01-01"],
            "--reason must not be empty",
        ),
        (
            ["accept", "x", "--reason", "y", "--expires", "soon"],
            "must be a day such as 2030-01-31, but got 'soon'",
        ),
        (
            ["accept", "x", "--reason", "y", "--expires", "2999-01-01", "--ratio", "nan"],
            "accept: ratio: Input should be a finite number, but got nan.",
        ),
        (["history", "--results", "nope"], "--results must name a folder, but nope is none."),
        (
            ["--base", "main", "--output", "/dev/null"],
            "--output /dev/null can't be written: File exists.",
        ),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(capsys, argv, said):
    assert cli.main(argv) == 2
    answer = capsys.readouterr().err
    assert said in answer
    assert len(answer.splitlines()) == 1
