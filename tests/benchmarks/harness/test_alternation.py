"""Libraries in alternation: every round calls each once, and a failure costs one row alone."""

import json
import subprocess
import sys

import pytest

from benchmarks.harness import alternation
from benchmarks.harness.alternation import Budget, Outcome, alternate, ratios
from benchmarks.harness.workload import Case, Workload

TINY = Workload("throughput", "tiny", "cartpole-control", "random", 8, 32, ("quick",))
BUDGET = Budget(num_rounds=6, max_s=1_200.0)

# A library that answers at once; `extra` is Python that it runs at every request.
FAKE = """
import json, os, sys, time
replies = dict(prepare=dict(num_steps=1, compile_s=0.0), call=dict(seconds=0.5))
replies["stats"] = dict(num_episodes=0)
print({hello!r}, flush=True)
for line in sys.stdin:
    request = json.loads(line)["do"]
    {extra}
    print(json.dumps(replies[request]), flush=True)
"""


@pytest.fixture
def fakes(monkeypatch):
    """Make libraries by their names: what each does besides, and says hello with."""

    def made(hellos=None, **extras):
        def command(name):
            hello = json.dumps((hellos or {}).get(name, {}))
            return [sys.executable, "-S", "-c", FAKE.format(extra=extras[name], hello=hello)]

        monkeypatch.setattr(alternation, "library_command", command)
        return [Case(name, TINY) for name in extras]

    return made


@pytest.fixture
def started(monkeypatch):
    """List the processes that were started."""
    processes, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        processes.append(real(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return processes


def test_every_round_calls_every_library_once_and_the_order_varies(fakes, tmp_path):
    log = tmp_path / "log"
    note = "request == 'call' and print('{}', file=open({!r}, 'a'))"
    cases = fakes(**{name: note.format(name, str(log)) for name in ("a", "b", "c")})
    outcomes = alternate(cases, Budget(num_rounds=12))
    called = log.read_text().split()
    rounds = [tuple(called[start : start + 3]) for start in range(0, len(called), 3)]
    assert [len(outcome.seconds) for outcome in outcomes] == [12, 12, 12]
    assert {tuple(sorted(names)) for names in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) > 2


def test_one_that_dies_is_a_failure_and_the_other_goes_on(fakes, started):
    extra = "request == 'call' and sys.exit('on fire')"
    lost, alive = alternate(fakes(lost=extra, sound="pass"), BUDGET)
    assert lost.status == "failed"
    assert "exit code 1: on fire" in lost.reason
    assert (alive.status, alive.seconds) == ("ok", [0.5] * 6)
    assert [process.poll() is None for process in started] == [False, False]


def test_no_process_is_left_when_the_parent_is_interrupted(fakes, started, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(alternation, "_run_rounds", interrupt)
    with pytest.raises(KeyboardInterrupt):
        alternate(fakes(sound="pass"), BUDGET)
    assert [process.poll() is None for process in started] == [False]


def test_ratios_leave_out_rounds_in_which_one_had_failed():
    case = Case("myriad", TINY)
    fast = Outcome(case, prepared={"num_steps": 10}, seconds=[1.0, 2.0, 1.0])
    slow = Outcome(case, prepared={"num_steps": 5}, seconds=[2.0, 2.0, None])
    assert ratios(fast, slow) == [4.0, 2.0]


OURS = {
    "hardware": {"device_kind": "cpu", "device_name": "a processor", "cores": 2},
    "versions": {"myriad": "1.2.3"},
}


@pytest.mark.parametrize(("device", "status"), [("cpu", "ok"), ("gpu", "refused")])
def test_a_peer_is_told_the_machine_and_refused_if_its_jax_runs_elsewhere(device, status, fakes):
    theirs = {"hardware": {"device_kind": device}, "versions": {"jax": "0.1"}}
    cases = fakes({"ours": OURS, "peer": theirs}, ours="pass", peer="pass")
    ours, peer = alternate(cases, BUDGET)
    assert (ours.status, peer.status) == ("ok", status)
    if status == "ok":
        assert peer.hello["hardware"] == OURS["hardware"]
        assert peer.hello["versions"] == {"myriad": "1.2.3", "jax": "0.1"}
    else:
        assert "its JAX runs on the gpu" in peer.reason
