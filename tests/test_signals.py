"""No signal is lost, wherever Python is when it comes; a training's are in `training`."""

import signal
import subprocess
import sys

import pytest

from myriad.signals import end_by_signal

# Python can't raise out of a callback of its garbage collector.
IN_A_CALLBACK = """
import contextlib, gc, os, signal, sys, time
from myriad.signals import Interrupts, end_by_signal, interrupts_kept

{first}
signal.signal(signal.SIGTERM, end_by_signal)

def called(phase, info):
    gc.callbacks.clear()
    {happens}

gc.callbacks.append(called)
with {within}:
    gc.collect()
    time.sleep({seconds})
"""
OF_THE_COMMAND_LINE = "contextlib.nullcontext(Interrupts().install())"
SIGNALLED = "os.kill(os.getpid(), {}); time.sleep(0)"


def run(happens, within, seconds, first=""):
    code = IN_A_CALLBACK.format(first=first, happens=happens, within=within, seconds=seconds)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_signal_before_training_ends_by_an_exit():
    with pytest.raises(SystemExit, match="143"):
        end_by_signal(signal.SIGTERM, None)


@pytest.mark.parametrize("within", [OF_THE_COMMAND_LINE, "interrupts_kept()"])
@pytest.mark.parametrize(
    ("number", "code"), [("signal.SIGTERM", 143), ("signal.SIGINT", -signal.SIGINT)]
)
def test_a_signal_is_not_lost_where_python_cannot_raise(number, code, within):
    done = run(SIGNALLED.format(number), within, 20)
    assert done.returncode == code
    assert done.stderr.count("Exception ignored") == 0
    assert (done.stderr == "") == (code == 143)  # Python shows where an interrupt came


@pytest.mark.parametrize("within", [OF_THE_COMMAND_LINE, "interrupts_kept()"])
def test_an_exit_of_somebody_elses_is_left_to_python(within):
    done = run("sys.exit('text')", within, 0.2)
    assert done.returncode == 0
    assert "Exception ignored" in done.stderr


def test_a_hook_of_your_own_stays():
    done = run("sys.exit(1)", "interrupts_kept()", 0, first="sys.unraisablehook = print")
    assert done.returncode == 0
    assert "UnraisableHookArgs" in done.stdout
