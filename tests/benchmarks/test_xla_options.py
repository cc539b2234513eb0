"""What an option gains: the launches alternate, the ratio is taken within a round."""

import pytest

from benchmarks import xla_options
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.workloads import SuiteError
from myriad.hardware import XLA_CPU_OPTIONS


def test_each_ratio_is_of_one_round_and_the_order_turns(monkeypatch):
    launches = []

    def launched(without):
        launches.append(without)
        # Every launch is slower than the one before it, and b gains a quarter beside that.
        return {"loop": 1000.0 - len(launches) - 250.0 * (without == "b")}

    monkeypatch.setattr(xla_options, "launched", launched)
    found = xla_options.ratios(["a", "b"], 2)
    assert launches == ["", "a", "b", "", "b", "a"]
    assert [round(each.ratio, 1) for each in found] == [1.0, 1.3, 1.0, 1.3]
    lines = xla_options.table(found).splitlines()
    assert lines[0] == "| program | `a` | `b` |"
    assert lines[2].startswith("| loop | 1.00 (1.00 to 1.0")


def test_every_option_is_left_out_in_a_process_of_its_own(monkeypatch, capsys):
    asked = []

    def run(target, request, *, timeout_s, **environ):
        asked.append(environ[xla_options._VARIABLE])
        return {"loop": 1.0}

    monkeypatch.setattr(xla_options.child_process, "run", run)
    assert xla_options.main(["--launches", "1"]) == 0
    assert asked == ["", *XLA_CPU_OPTIONS]
    printed = capsys.readouterr().out
    assert all(f"`{name}`" in printed for name in XLA_CPU_OPTIONS)


def test_a_launch_that_dies_is_one_sentence(monkeypatch):
    def die(*args, **kwargs):
        raise ChildError("failed", "the process ended by signal 6: no message")

    monkeypatch.setattr(xla_options.child_process, "run", die)
    with pytest.raises(SuiteError, match="without nothing failed: the process ended by signal 6"):
        xla_options.launched("")


@pytest.mark.slow
def test_the_programs_are_timed_with_fewer_environments(monkeypatch):
    monkeypatch.setattr(xla_options, "ROLLOUTS", {"cartpole-control": ((8, 4),)})
    monkeypatch.setattr(xla_options, "PPO_ENVS", (4,))
    monkeypatch.setattr(xla_options, "_PPO_STEPS", 256)
    monkeypatch.setattr(xla_options, "_SECONDS", 0.0)
    found = xla_options.rates()
    assert list(found) == ["cartpole-control, 8 environments", "training by PPO, 4 environments"]
    assert all(rate > 0 for rate in found.values())
