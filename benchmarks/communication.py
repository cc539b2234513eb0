"""How many devices a training in shards can use before their network costs a fifth of them.

    python benchmarks/communication.py                          PPO on CartPole
    python benchmarks/communication.py --env snake --agent pqn --num-envs 1024
    python benchmarks/communication.py --bandwidth-gbit 25 --latency-us 20

A model for devices that this machine lacks. What a device computes is measured here: the seconds of
an update, and those of adding up gradients. What devices tell each other is read from the program:
each collective, its bytes, and how often an update has it. A published network tells the rest. A
message of `n` bytes takes `alpha + n beta` seconds, `alpha` the latency of a step and `beta` one
over the bandwidth. Each device has one shard, of `b` bytes. On `p` devices

    all-gather, ring     (p - 1) alpha      + (p - 1) b beta
    all-gather, tree     log2(p) alpha      + (p - 1) b beta
    all-reduce, ring     2 (p - 1) alpha    + 2 (p - 1) / p b beta
    all-reduce, tree     2 log2(p) alpha    + 2 (p - 1) / p b beta

The formulas are those of Thakur, Rabenseifner and Gropp (2005), Optimization of Collective
Communication Operations in MPICH, where trees are recursive doubling and halving; and, for the ring
of an all-reduce, of Patarasu and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters
of workstations. Efficiency is the share of an update that is not spent on the others. The model
lets nothing overlap, and has no congestion.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.command_line import (
    Parser,
    command_of,
    count,
    guarded,
    resolved_agent,
    resolved_env,
    writable,
)
from benchmarks.harness.files import write_rows
from benchmarks.harness.results import markdown
from benchmarks.harness.workloads import SuiteError

_SCRIPT = "benchmarks/communication.py"
_ENV = "cartpole-control"
# Those whose gradient steps are a scan, whose length the program states.
AGENTS = ("ppo", "pqn")
_NUM_ENVS, _NUM_SHARDS = 256, 8
_STEPS_PER_ENV = 1_000_000
_DEVICES = (8, 64, 1_024)
_ENOUGH = 0.8
_SECONDS = 1.0  # of calls to each program, and at least so many calls
_CALLS = 7
_GATHER = "all_gather"
ALGORITHMS = ("ring", "tree")


@dataclass(frozen=True)
class Network:
    """A published network.

    Attributes:
        name: what the table calls it.
        bytes_per_s: the nominal bandwidth of a link in one direction.
        latency_s: of one step of a collective.
    """

    name: str
    bytes_per_s: float
    latency_s: float


# Bandwidths: IEEE 802.3 for 100 Gbit/s Ethernet; the InfiniBand Trade Association's roadmap for NDR
# at four lanes; NVIDIA's data sheet of the H100 for NVLink, half of its 900 GB/s in each direction.
# Latencies: those of a ring's step in the cost model of NCCL, `hwLat` in src/graph/tuning.cc at
# commit 01afd20, by its protocol Simple. It has one for all networks, and one for NVLink.
NETWORKS = (
    Network("100 Gbit/s Ethernet", 100e9 / 8, 9.6e-6),
    Network("InfiniBand NDR, 400 Gbit/s", 400e9 / 8, 9.6e-6),
    Network("NVLink of an H100", 450e9, 3.4e-6),
)


@dataclass(frozen=True)
class Collective:
    """A collective of an update.

    Attributes:
        primitive: JAX's name of it.
        num_bytes: of one shard, or of what all shards are added up in.
        times: how often an update has it.
    """

    primitive: str
    num_bytes: int
    times: int

    def seconds(self, num_devices: int, network: Network, algorithm: str) -> float:
        """Return what all of them take in an update, see the formulas above."""
        others = num_devices - 1
        steps = others if algorithm == "ring" else math.ceil(math.log2(num_devices))
        moved = others * self.num_bytes
        if self.primitive != _GATHER:
            steps *= 2
            moved *= 2 / num_devices
        return self.times * (steps * network.latency_s + moved / network.bytes_per_s)


@dataclass(frozen=True)
class Measured:
    """A training as it was measured on one device.

    Attributes:
        reduction: how its gradients are added up.
        shard_s: seconds of one shard's part of an update.
        collectives: those of an update, the gradient's first.
        adding_s: seconds of adding up the gradients of so many shards, once, by their number.
    """

    reduction: str
    shard_s: float
    collectives: Sequence[Collective]
    adding_s: dict[int, float]

    def efficiency(self, num_devices: int, network: Network, algorithm: str) -> float:
        """Return the share of an update on so many devices that is a device's own work."""
        told = sum(each.seconds(num_devices, network, algorithm) for each in self.collectives)
        added = self.collectives[0].times * self.adding_s.get(num_devices, 0.0)
        return self.shard_s / (self.shard_s + told + added)


@dataclass(frozen=True)
class Estimate:
    """A row of the table.

    Attributes:
        most_devices: the most, a power of two, that keep four fifths; 1 where two don't.
    """

    network: str
    reduction: str
    algorithm: str
    num_devices: int
    efficiency: float
    most_devices: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    options = _parse(argv)
    networks = _networks(options)
    command = command_of(_SCRIPT, argv)
    # The work of one device, whatever else this machine has.
    myriad.configure(1)
    measured = [measure(options, reduction) for reduction in ("exact", "fast")]
    for each in measured:
        print(_described(each, options.num_shards))
    estimates = list(estimated(measured, networks, options.devices))
    print(f"\n{table(estimates, options.devices)}\n")
    print(f"reproduce with: {command}")
    if options.output is not None:
        write_rows(options.output, Estimate, estimates)
    return True


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_env(_ENV)
    parser.add_agent(AGENTS[0])
    parser.add_num_envs(_NUM_ENVS)
    parser.add_argument(
        "--num-shards",
        type=count,
        default=_NUM_SHARDS,
        metavar="N",
        help=f"shards that the measured device works off (default: {_NUM_SHARDS})",
    )
    parser.add_argument(
        "--devices",
        type=count,
        nargs="+",
        default=_DEVICES,
        metavar="N",
        help=f"powers of two (default: {' '.join(map(str, _DEVICES))})",
    )
    parser.add_argument("--bandwidth-gbit", type=float, metavar="GBIT", help="of your own network")
    parser.add_argument("--latency-us", type=float, metavar="US", help="of its steps")
    parser.add_argument("--output", type=writable, metavar="FILE", help="CSV file, a row per cell")
    options = parser.parse_args(argv)
    for each in options.devices:
        if each < 2 or each & (each - 1):
            parser.error(f"--devices must be powers of two from 2 on, but got {each}")
    options.agent = resolved_agent(options.agent)
    if options.agent not in AGENTS:
        parser.error(f"--agent must be one of {', '.join(AGENTS)}, but got {options.agent}")
    if options.num_shards < 2:
        parser.error(f"--num-shards must be at least 2, but got {options.num_shards}")
    return options


def _networks(options: argparse.Namespace) -> Sequence[Network]:
    given = (options.bandwidth_gbit, options.latency_us)
    if given == (None, None):
        return NETWORKS
    for name, value in zip(("--bandwidth-gbit", "--latency-us"), given, strict=True):
        if value is None or not 0 < value < math.inf:
            raise SuiteError(
                f"{name} must be a number above 0 where one of --bandwidth-gbit and --latency-us "
                f"is given, but got {value}."
            )
    bandwidth, latency = given
    name = f"{bandwidth:g} Gbit/s, {latency:g} us"
    return (Network(name, 1e9 * bandwidth / 8, 1e-6 * latency),)


def measure(options: argparse.Namespace, reduction: str) -> Measured:
    """Measure a training in shards on one device."""
    import numpy as np

    from myriad import create_config
    from myriad.random import make_key
    from myriad.training.loop import LearningLoop
    from myriad.xla import result_shapes

    config = create_config(
        resolved_env(options.env),
        options.agent,
        options.num_envs,
        _STEPS_PER_ENV,
        num_shards=options.num_shards,
        reduction=reduction,
    )
    resolved = config.resolve()
    learner = resolved.learner
    loop = LearningLoop(
        resolved.env, learner.scheduled(resolved.num_updates), resolved.num_envs, num_devices=1
    )
    init, run = loop.jitted()
    first = init.trace(make_key(0))
    one, begin = np.int32(1), np.bool_(False)  # noqa: FBT003
    running = run.trace(result_shapes(first), one, begin)
    collectives = collectives_of(running.jaxpr.jaxpr, options.num_shards)
    program = running.lower().compile()
    before = np.int32(max(1, learner.first_learning_update(resolved.num_envs)))
    state, _ = program(first.lower().compile()(make_key(0)), before, begin)

    def update() -> Any:
        nonlocal state
        state, told = program(state, one, begin)
        return told

    update_s = median_seconds(update)
    adding_s: dict[int, float] = {}
    if reduction == "exact":
        columns = collectives[0].num_bytes // 4
        most = max(options.devices)
        adding_s = {number: adding_seconds(number, columns) for number in _powers_of_two(most)}
    # One shard after another, so a shard takes its share. What an update does once counts in part,
    # which makes the efficiency smaller than it is.
    return Measured(reduction, update_s / options.num_shards, collectives, adding_s)


def median_seconds(call: Callable[[], Any]) -> float:
    """Return the median seconds of calls, each up to the moment that its result is ready."""
    import jax

    jax.block_until_ready(call())
    seconds: list[float] = []
    while len(seconds) < _CALLS or sum(seconds) < _SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def adding_seconds(num_shards: int, columns: int) -> float:
    """Return the seconds of averaging so many gathered gradients as a gradient step does."""
    import jax
    import jax.numpy as jnp

    from myriad.agents.shards import SHARD_AXIS, Shards, shard_mesh

    by_shard = jax.P(SHARD_AXIS)
    mean = jax.jit(
        jax.shard_map(
            Shards(num_shards).mean,
            mesh=shard_mesh(1),
            in_specs=by_shard,
            out_specs=jax.P(),
            check_vma=False,
        )
    )
    gradients = jnp.ones((num_shards, columns))
    return median_seconds(lambda: mean(gradients))


def collectives_of(jaxpr: Any, num_shards: int) -> list[Collective]:
    """Return the collectives of one update, the one that moves the most bytes first."""
    found: dict[tuple[str, int], int] = {}
    for equation, times in _repeated(jaxpr, 1):
        name = equation.primitive.name
        if name == _GATHER or name.startswith(("psum", "pmax", "pmin")):
            # Gathered in one collective for all shards of a device, of which there will be one.
            share = num_shards if name == _GATHER else 1
            key = name, sum(x.aval.size * x.aval.dtype.itemsize for x in equation.invars) // share
            found[key] = found.get(key, 0) + times
    every = [Collective(*key, times) for key, times in found.items()]
    return sorted(every, key=lambda each: -each.num_bytes * each.times)


def _repeated(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    """Go through the operations of a program, and say how often an update has each.

    A loop of unknown length counts once: the one over updates, and those of one pass.
    """
    from jax.extend.core import jaxprs_in_params

    for equation in jaxpr.eqns:
        yield equation, times
        inside = (
            times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        )
        for inner in jaxprs_in_params(equation.params):
            yield from _repeated(inner, inside)


def estimated(
    measured: Sequence[Measured], networks: Sequence[Network], devices: Sequence[int]
) -> Iterator[Estimate]:
    """Go through networks, reductions, algorithms and numbers of devices."""
    for network in networks:
        for training in measured:
            for algorithm in ALGORITHMS:
                most = 1
                for number in _powers_of_two(max(devices)):
                    if training.efficiency(number, network, algorithm) < _ENOUGH:
                        break
                    most = number
                for number in devices:
                    efficiency = training.efficiency(number, network, algorithm)
                    yield Estimate(
                        network.name, training.reduction, algorithm, number, efficiency, most
                    )


def _powers_of_two(most: int) -> list[int]:
    return [1 << power for power in range(1, most.bit_length())]


def _described(measured: Measured, num_shards: int) -> str:
    gradient, *others = measured.collectives
    num_others = sum(each.times for each in others)
    other_bytes = sum(each.times * each.num_bytes for each in others)
    text = (
        f"{measured.reduction}: a shard's part of an update takes {1e3 * measured.shard_s:.3f} ms "
        f"(one of {num_shards}). It has {gradient.times} gradient steps of {gradient.num_bytes:,} "
        f"bytes by {gradient.primitive}, and {num_others} other collectives of {other_bytes:,} "
        "bytes in all."
    )
    if measured.adding_s:
        most = max(measured.adding_s)
        added = 1e3 * measured.adding_s[most]
        text += f" Adding up {most:,} gradients takes {added:.3f} ms."
    return text


def table(estimates: Sequence[Estimate], devices: Sequence[int]) -> str:
    """Return a line for each network, reduction and algorithm."""
    headers = ["network", "reduction", "algorithm", *(f"{each:,} devices" for each in devices)]
    lines: dict[tuple[str, str, str], list[str]] = {}
    most: dict[tuple[str, str, str], str] = {}
    for each in estimates:
        key = each.network, each.reduction, each.algorithm
        lines.setdefault(key, [*key]).append(f"{each.efficiency:.2f}")
        is_beyond = each.most_devices == max(devices)
        most[key] = f"{each.most_devices:,}{' or more' if is_beyond else ''}"
    rows = [[*line, most[key]] for key, line in lines.items()]
    return markdown([*headers, f"the most above {_ENOUGH}"], rows)


if __name__ == "__main__":
    sys.exit(main())
