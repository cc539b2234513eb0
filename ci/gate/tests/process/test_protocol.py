"""What gate and worker say to each other: nothing is lost, and no module is in the way."""

import json
import typing

import pytest

from gate_repository import make_repository
from perfgate.measure.workers import _REPLIES
from perfgate.process import protocol
from perfgate.process.protocol import REQUESTS, decode_request, encode

FILES = protocol.ProgramFiles(
    "a.lowered", None, {"jax": "1"}, {"temp_bytes": 8.0}, timed_is_program=True
)
FOOTPRINT = protocol.Footprint(("a.py",), has_all_imports=True)
REQUESTED = [
    protocol.Discover(),
    protocol.Origins(core=3),
    protocol.Inspect("a(1)", "a", 0, core=1),
    protocol.Watch("a", "a", None),
    protocol.Calibrate("a", "a", None, target_s=0.02),
    protocol.Sample("a", "a", None, calls=3, own_time=False),
    protocol.Release("a", "a", None),
]
REPLIED = [
    protocol.Suite(
        (protocol.Listing("a", "time", "s", (("1", "2"), ("'x'",)), None, 3.0),), {"b": "why"}, {}
    ),
    protocol.Modules({"numpy": "/numpy/__init__.py"}),
    protocol.FirstRun(0.5, None, {"compile_s": 1.5}, FILES, FOOTPRINT),
    protocol.Seconds(1e-9),
    protocol.Calibration(7, fixed=False, seconds=0.1, wall_s=0.8, is_work=True),
    protocol.Calls({"f": 2}, {"f": 0.5}),
    protocol.Released(),
    protocol.Skipped("NotImplementedError: no GPU"),
    protocol.Failed("ValueError: no", by_runner=True, is_fatal=True),
]


@pytest.mark.parametrize("message", REQUESTED, ids=str)
def test_a_request_arrives_as_it_was_sent(message):
    assert decode_request(encode(message, 4)) == (4, message)


@pytest.mark.parametrize("message", REPLIED, ids=str)
def test_a_reply_arrives_as_it_was_sent(message):
    number, kind, fields = json.loads(encode(message, 4))
    assert (number, _REPLIES[kind].validate_python(fields)) == (4, message)


def test_every_message_is_tried_here():
    assert {type(each).__name__ for each in REQUESTED} == REQUESTS.keys()
    assert {type(each) for each in REPLIED} == set(typing.get_args(protocol.Reply))


SHADOWS = ("calls", "listing", "process", "protocol", "suite", "worker")


@pytest.mark.slow
def test_a_suites_own_modules_and_the_workers_do_not_meet(tmp_path):
    """Neither shadows the other, whatever it is called."""
    repository = make_repository(tmp_path)
    for name in SHADOWS:
        repository.write(f"{name}.py", "OWN = True\n")
    imports = "\n".join(f"import {name}\nassert {name}.OWN" for name in SHADOWS)
    ours = "['serving', 'first_run', 'own_time', 'counters']"
    repository.write(
        "benchmarks/names.py",
        f"import importlib.util\n{imports}\n\n\n"
        f"def track_found():\n"
        f"    return sum(importlib.util.find_spec(each) is not None for each in {ours})\n",
    )
    repository.commit()
    repository.write("smallsum/data.txt", "")
    run = repository.gate("--base", "main", "--bench", "names", "--no-timing")
    (row,) = run.rows.values()
    assert (row["verdict"], row["changes"][0]["head"]) == ("same", 0.0)
