"""The command line: what it lists, how it answers what it does not know, and how it ends."""

import os
import signal
from importlib.metadata import version

import pytest

from perfgate import cli
from perfgate.options import STOPPING, guarded

ACCEPT = ["accept", "x", "--reason", "y", "--expires"]
GATE = ["--base", "main"]


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
        (["acept"], "perfgate has no command 'acept'; did you mean 'accept'?"),
        ([], "the following arguments are required: --base"),
        ([*GATE, "--pytest-args", "-k x"], "--pytest-args needs --pytest-benchmark"),
        ([*GATE, "--bench", "("], "'(' is not a valid regular expression"),
        (["comment"], "--changed; perfgate comment --help lists the flags."),
        ([*ACCEPT, "2020-01-01"], "--expires must not be in the past, but got 2020-01-01."),
        ([*ACCEPT, "2999-01-01", "--ratio", "2", "--reason", " "], "accept: reason: "),
        (["history", "--results", "nope"], "--results must name a folder, but nope is none."),
        ([*GATE, "--output", "/dev/null"], "--output /dev/null can't be written: File"),
        (["--base", "nowhere"], "'nowhere' is not a commit"),
        ([*GATE, "--suite-config", "absent.json"], "there is no absent.json"),
        ([*GATE, "--bench", "nothing_like_it"], "matches no benchmark"),
        ([*GATE, "--python", "nowhere/python"], "'nowhere/python' is not a program"),
        ([*GATE, "--shard", "3/2"], "--shard"),
        ([*GATE, "--bench", "track_mean", "--shard", "2/2"], "holds no benchmark"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(repository, argv, said):
    repository.write("smallsum/other.py", "")
    run = repository.perfgate(*argv)
    assert run.code == 2
    (answer,) = [line for line in run.err.splitlines() if not line.startswith("listing the")]
    assert said in answer


def test_a_bug_of_the_gate_is_no_regression(capsys):
    assert guarded(lambda: 1 / 0, "stopped") == 3
    said = capsys.readouterr().err
    assert said.endswith("COULD NOT TELL: a bug in perfgate: ZeroDivisionError.\n")


@pytest.mark.usefixtures("no_signal_is_ignored")
@pytest.mark.parametrize("number", STOPPING)
def test_a_second_signal_does_not_interrupt_the_clearing_up(number, capsys):
    handlers = [signal.getsignal(each) for each in STOPPING]
    cleared = []

    def command():
        try:
            os.kill(os.getpid(), number)
        finally:
            for each in STOPPING:
                os.kill(os.getpid(), each)
            cleared.append(number)
        return 0

    assert guarded(command, "stopped") == 130
    assert (cleared, capsys.readouterr().err) == ([number], "stopped\n")
    assert [signal.getsignal(each) for each in STOPPING] == handlers


def test_a_hang_up_that_nohup_ignores_stays_ignored():
    def command():
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert guarded(command, "stopped") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
