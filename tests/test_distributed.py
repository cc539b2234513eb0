"""What processes tell each other, on a store in this process: what real ones can't show in time."""

import os
import socket
import threading
import time

import pytest

from myriad.distributed import watch
from myriad.distributed.connections import Connections
from myriad.distributed.group import Processes
from myriad.errors import InvalidArgumentError
from tests.ports import free_port


class Shared:
    """A store with the methods of the real one."""

    def __init__(self):
        self.values = {}

    def set(self, name, value):
        self.values[name] = value

    def wait_for(self, name):
        until_s = time.monotonic() + 10
        while name not in self.values:
            assert time.monotonic() < until_s, name
            time.sleep(0.01)
        return self.values[name]

    def by_process(self, name):
        found = {key: value for key, value in self.values.items() if key.startswith(f"{name}/")}
        return {int(key.rpartition("/")[2]): value for key, value in found.items()}

    def forget(self, name):
        self.values = {k: v for k, v in self.values.items() if not k.startswith(name)}


@pytest.fixture
def store():
    return Shared()


@pytest.fixture
def ended(monkeypatch):
    """What a watch would have ended this process with."""
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(watch, "_BEAT_S", 0.02)
    monkeypatch.setattr(watch, "_FAREWELL_S", 0.0)
    return codes


def wait_for(condition):
    until_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def connections_of(store, count=2):
    first = Connections(store, 0, count, "127.0.0.1")
    others = [Connections(store, number, count, "127.0.0.1") for number in range(1, count)]
    return first, others


def test_a_closed_connection_is_found_once(store):
    first, (second,) = connections_of(store)
    assert first.ended() == []
    second.close()
    wait_for(lambda: first.ended() == [1])
    assert first.ended() == []
    first.close()


def test_strangers_are_taken_for_no_process(store):
    first, (second,) = connections_of(store)
    port, word = store.values["connection"]
    for said in (b"", b"7\n", b"1\n", b"\xff\n", f"{word} 7\n".encode(), f"{word} 0\n".encode()):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(said)
        for _ in range(5):
            assert first.ended() == []
            time.sleep(0.01)
    silent = socket.create_connection(("127.0.0.1", port))
    wait_for(lambda: first.ended() == [] and not first._greeting)
    silent.close()
    second.close()
    first.close()


def test_a_port_that_cannot_be_reached_is_said(store, capsys):
    port = free_port()
    store.set("connection", [port, "word"])
    one = Connections(store, 1, 2, "127.0.0.1")
    said = capsys.readouterr().err
    assert f"process 1 can't reach port {port} of process 0 (Connection refused)" in said
    assert one.ended() == []


def test_a_process_that_stops_answering_ends_the_others(store, ended, monkeypatch, capsys):
    monkeypatch.setattr(watch, "LOST_S", 0.2)
    first = watch.Watch(store, 0, 2, "127.0.0.1")
    wait_for(lambda: ended)
    assert ended[0] == 1
    assert "process 1 of 2 was lost: it or its host has not answered" in capsys.readouterr().err
    first.close()


def test_a_process_that_is_done_is_not_lost(store, ended, monkeypatch):
    monkeypatch.setattr(watch, "LOST_S", 0.2)
    first, second = (watch.Watch(store, number, 2, "127.0.0.1") for number in range(2))
    second.close()
    time.sleep(0.6)
    assert ended == []
    first.close()


def test_what_one_process_finds_wrong_fails_in_all(store, ended):
    problems = {}

    def check(number):
        group = Processes(store, number, 2, "127.0.0.1")

        def fails():
            if number:
                raise InvalidArgumentError("no room here")

        with pytest.raises(InvalidArgumentError) as raised:
            group.together(fails)
        problems[number] = str(raised.value)
        group._watch.close()

    threads = [threading.Thread(target=check, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert problems == {0: "process 1: no room here", 1: "no room here"}
    assert ended == []


@pytest.mark.parametrize(
    ("error", "sentence", "code"),
    [
        (OSError("full"), "process 1 of 2 ended: full", 2),
        (ZeroDivisionError("by 0"), "process 1 of 2 ended: by 0", 1),
        (KeyboardInterrupt(), "process 1 of 2 ended: it got SIGINT", 130),
        (SystemExit(143), "process 1 of 2 ended: it got SIGTERM", 143),
    ],
)
def test_an_error_of_one_process_ends_the_others_with_its_code(
    error, sentence, code, store, ended, capsys
):
    first, second = (Processes(store, number, 2, "127.0.0.1") for number in range(2))
    with pytest.raises(type(error)), second.watching():
        raise error
    wait_for(lambda: ended)
    assert ended[0] == code
    assert sentence in capsys.readouterr().err
    for each in (first, second):
        each._watch.close()
