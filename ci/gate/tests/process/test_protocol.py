"""What gate and worker say to each other: nothing is lost, and what does not fit is refused."""

import json
import sys

import pytest

from perfgate.process import protocol
from perfgate.process.channel import Launch, Worker
from perfgate.process.protocol import REPLIES, REQUESTS, ProtocolError, decode, encode

FILES = protocol.ProgramFiles(
    "a.lowered", None, {"jax": "1"}, {"temp_bytes": 8.0}, timed_is_program=True
)
REQUESTED = [
    protocol.Discover(),
    protocol.Origins(core=3),
    protocol.Inspect("a(1)", "a", 0, core=1),
    protocol.TimeFirstCalls("a", "a", None),
    protocol.Repeat("a", "a", None, 7, left_out=True),
    protocol.Watch("a", "a", None, root="/somewhere"),
    protocol.Calibrate("a", "a", None, target_s=0.02),
    protocol.Prepare("a", "a", None, calls=3, own_time=True),
    protocol.Sample("a", "a", None, calls=3, own_time=False),
    protocol.Release("a", "a", None),
]
REPLIED = [
    protocol.Hello(protocol.VERSION, counts_instructions=True),
    protocol.Suite(
        (protocol.Listing("a", "time", "s", (("1", "2"), ("'x'",)), None, 3.0),), {"b": "why"}, {}
    ),
    protocol.Modules({"numpy": "/numpy/__init__.py"}),
    protocol.FirstRun(0.5, 1.5, 2),
    protocol.FirstRun(0.5, 1.5, 2, 0, 12, FILES),
    protocol.Value(-3.25),
    protocol.Seconds(1e-9),
    protocol.Calibration(7, fixed=False, seconds=0.1, wall_s=0.8, is_work=True),
    protocol.Calls({"f": 2}, (protocol.Line("a.py", 3, "f()", 0.5),)),
    protocol.Released(),
    protocol.Skipped("NotImplementedError: no GPU"),
    protocol.Failed("ValueError: no"),
    protocol.Escaped(None),
]


@pytest.mark.parametrize(
    ("message", "kinds"),
    [*((each, REQUESTS) for each in REQUESTED), *((each, REPLIES) for each in REPLIED)],
    ids=str,
)
def test_a_message_arrives_as_it_was_sent(message, kinds):
    assert decode(encode(message, 4), kinds) == (4, message)


def test_every_message_is_tried_here():
    assert {type(each).__name__ for each in REQUESTED} == REQUESTS.keys()
    assert {type(each).__name__ for each in REPLIED} == REPLIES.keys()


def line(kind, **fields):
    return json.dumps({"number": 1, "kind": kind, "fields": fields})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("garbage", "it wrote into the pipe that belongs to the gate"),
        (line("Goodbye"), "the message 'Goodbye' is not allowed here"),
        (line("Discover"), "the message 'Discover' is not allowed here"),
        (line("Seconds"), "Seconds lacks the field 'seconds'"),
        (line("Seconds", seconds=1.0, calls=2), "Seconds has no field 'calls'"),
        (line("Seconds", seconds="1"), "Seconds.seconds must be float, but got '1'"),
        (
            line("Calls", calls={"f": True}, lines=[]),
            "Calls.calls.f must be int, but got True",
        ),
        (line("Modules", modules=[]), r"Modules.modules must be dict, but got \[\]"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(text, reason):
    with pytest.raises(ProtocolError, match=reason):
        decode(text, REPLIES)


def test_an_answer_to_another_request_is_refused():
    with pytest.raises(ProtocolError, match="it answered Discover with Released"):
        protocol.fitting(protocol.Discover(), protocol.Released())


SHADOWS = ("calls", "listing", "perfgate", "process", "protocol", "suite", "worker")


def test_a_suites_own_modules_and_the_workers_do_not_meet(tmp_path):
    """Neither shadows the other, whatever it is called."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text("OWN = True\n")
    suite = tmp_path / "benchmarks"
    suite.mkdir()
    (suite / "__init__.py").write_text("")
    imports = "\n".join(f"import {name}\nassert {name}.OWN" for name in SHADOWS)
    ours = "['serving', 'first_run', 'own_time', 'counters']"
    (suite / "names.py").write_text(
        f"import importlib.util\n{imports}\n\n\n"
        f"def track_found():\n"
        f"    return sum(importlib.util.find_spec(each) is not None for each in {ours})\n"
    )
    launch = Launch(
        sys.executable,
        suite,
        tmp_path,
        tmp_path,
        tmp_path,
        environment={"PYTHONPATH": str(tmp_path)},
    )
    with Worker(launch) as worker:
        found = worker.ask(protocol.Discover(), 60)
        assert found.broken == {}
        (benchmark,) = found.benchmarks
        reply = worker.ask(protocol.Inspect(benchmark.name, benchmark.name, None), 60)
    assert isinstance(reply, protocol.Value)
    assert reply.value == 0.0
