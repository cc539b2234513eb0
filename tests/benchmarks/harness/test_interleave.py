import json
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.harness import interleave
from benchmarks.harness.interleave import Budget, LibraryProcess, Outcome, alternate, ratios
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workload import Case, Workload

TINY = Workload(
    "throughput", "tiny", "cartpole-control", "random", 256, 32, ("quick",), num_steps=320
)
BUDGET = Budget(num_rounds=6, max_s=1_200.0)

# A side that answers at once; `extra` is Python that it runs at every request.
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
def fake_sides(monkeypatch):
    """Replace the sides by fakes; the fixture's value takes what each does besides, by its name."""

    def replace_by(hellos=None, **extras):
        def command(side):
            hello = json.dumps((hellos or {}).get(side, {}))
            return [sys.executable, "-S", "-c", FAKE.format(extra=extras[side], hello=hello)]

        monkeypatch.setattr(interleave, "side_command", command)
        return [Case(side, TINY) for side in extras]

    return replace_by


@pytest.fixture
def started(monkeypatch):
    """List the processes that were started."""
    processes, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        processes.append(real(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return processes


def test_every_round_calls_every_side_once_and_the_order_varies(fake_sides, tmp_path):
    log = tmp_path / "log"
    note = "request == 'call' and print('{}', file=open({!r}, 'a'))"
    cases = fake_sides(**{name: note.format(name, str(log)) for name in ("a", "b", "c")})
    outcomes = alternate(cases, Budget(num_rounds=12))
    called = log.read_text().split()
    rounds = [tuple(called[start : start + 3]) for start in range(0, len(called), 3)]
    assert [len(outcome.seconds) for outcome in outcomes] == [12, 12, 12]
    assert {tuple(sorted(names)) for names in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) > 2


def test_a_side_that_dies_is_a_failure_with_its_last_words_and_the_other_goes_on(fake_sides):
    dying = "request == 'call' and sys.exit('the machine room is on fire')"
    dead, alive = alternate(fake_sides(dying=dying, sound="pass"), BUDGET)
    assert dead.status == "failed"
    assert "exit code 1: the machine room is on fire" in dead.reason
    assert (alive.status, alive.seconds) == ("ok", [0.5] * 6)


@pytest.mark.slow
def test_a_side_that_hangs_is_a_failure_and_leaves_no_process(fake_sides, started):
    cases = fake_sides(hanging="request == 'call' and time.sleep(600)", sound="pass")
    hung, alive = alternate(cases, replace(BUDGET, call_timeout_s=2.0))
    assert (hung.status, hung.reason) == ("failed", "no answer within 2 s")
    assert alive.status == "ok"
    assert [process.poll() is None for process in started] == [False, False]


def test_no_process_is_left_when_the_parent_is_interrupted(fake_sides, started):
    def interrupt(event, outcomes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alternate(fake_sides(sound="pass"), BUDGET, on_event=interrupt)
    assert [process.poll() is None for process in started] == [False]


def test_rounds_stop_at_the_time_budget_but_not_before_the_interval_has_its_samples(fake_sides):
    (outcome,) = alternate(fake_sides(sound="pass"), Budget(num_rounds=50, max_s=0.0))
    assert len(outcome.seconds) == Budget.min_rounds


def test_ratios_leave_out_rounds_in_which_a_side_had_failed():
    case = Case("myriad", TINY)
    fast = Outcome(case, prepared={"num_steps": 10}, seconds=[1.0, 2.0, 1.0])
    slow = Outcome(case, prepared={"num_steps": 5}, seconds=[2.0, 2.0, None])
    assert ratios(fast, slow) == [4.0, 2.0]


def test_a_library_that_is_absent_is_told_apart(monkeypatch, tmp_path):
    (tmp_path / "gymnax.py").write_text("raise ImportError('gymnax is hidden')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        LibraryProcess("gymnax") as side,
        pytest.raises(ChildError, match="gymnax is hidden") as error,
    ):
        side.reply(timeout_s=600)
    assert error.value.status == "not installed"


OURS = {
    "hardware": {"device_kind": "cpu", "device_name": "a processor", "cores": 2},
    "versions": {"myriad": "1.2.3"},
}


def test_a_peer_in_a_python_of_its_own_is_told_the_machine_by_the_side_beside_it(fake_sides):
    theirs = {"hardware": {"device_kind": "cpu"}, "versions": {"jax": "0.1"}}
    cases = fake_sides({"ours": OURS, "peer": theirs}, ours="pass", peer="pass")
    _, peer = alternate(cases, BUDGET)
    assert peer.status == "ok"
    assert peer.hello["hardware"] == OURS["hardware"]
    assert peer.hello["versions"] == {"myriad": "1.2.3", "jax": "0.1"}


def test_a_peer_whose_jax_runs_on_another_device_is_refused(fake_sides):
    theirs = {"hardware": {"device_kind": "gpu"}, "versions": {"jax": "0.1"}}
    cases = fake_sides({"ours": OURS, "peer": theirs}, ours="pass", peer="pass")
    ours, peer = alternate(cases, BUDGET)
    assert (ours.status, peer.status) == ("ok", "refused")
    assert "its JAX runs on the gpu" in peer.reason
