import math
from types import SimpleNamespace

from benchmarks import scan_chunk
from benchmarks.scan_chunk import common_steps


def test_the_common_steps_are_whole_chunks_where_few_suffice():
    for chunks, steps in (([1, 16, 128], 128), ([2, 3], 6), ([97, 101], 101), ([7], 7)):
        assert common_steps(chunks) == steps


class Stepped:
    """A program that takes no time; an agent whose updates take 8 steps makes chunks of 8."""

    num_devices, compile_s = 1, 0.5

    def __init__(self, env, agent, num_envs, scan_chunk_size):
        if scan_chunk_size == 64:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory\nand a stack")
        self.scan_chunk_size, self.ran = 8 * math.ceil(scan_chunk_size / 8), []
        sizes = ("argument_bytes", "temp_bytes", "output_bytes", "generated_code_bytes")
        self.reports = (SimpleNamespace(**dict.fromkeys(sizes, 3)),)

    def start(self):
        self.ran = []

    def run(self, num_steps):
        self.ran.append(num_steps)


def test_a_size_that_fails_leaves_the_others_and_two_sizes_that_are_one_are_timed_once(monkeypatch):
    monkeypatch.setattr(scan_chunk, "program", Stepped)
    found = scan_chunk._timed([1, 8, 64, 16], 6, 1.0, "cartpole-control", "ppo", 4)["chunks"]
    assert [(each["scan_chunk_size"], each.get("failure", "")) for each in found] == [
        (8, ""),
        (16, ""),
        (64, "RESOURCE_EXHAUSTED: out of memory"),
    ]
    assert {each["num_steps"] % 16 for each in found if "failure" not in each} == {0}
