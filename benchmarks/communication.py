"""Estimate how many devices a sharded training can use before communication costs a fifth.

    python benchmarks/communication.py                          PPO on CartPole
    python benchmarks/communication.py --env snake --agent pqn --num-envs 1024
    python benchmarks/communication.py --bandwidth-gbit 25 --latency-us 20

This is a model for devices that this machine lacks. It measures what one device computes: the
seconds of an update, and those of adding up gradients. It reads the communication from the program:
each collective, its bytes, and how often an update runs it. The latency and bandwidth are those of
published networks. A message of `n` bytes takes `alpha + n beta` seconds, where `alpha` is the
latency of a step and `beta` is one over the bandwidth. Each device has one shard, of `b` bytes. On
`p` devices

    all-gather, ring     (p - 1) alpha      + (p - 1) b beta
    all-gather, tree     log2(p) alpha      + (p - 1) b beta
    all-reduce, ring     2 (p - 1) alpha    + 2 (p - 1) / p b beta
    all-reduce, tree     2 log2(p) alpha    + 2 (p - 1) / p b beta

The formulas are those of Thakur, Rabenseifner and Gropp (2005), Optimization of Collective
Communication Operations in MPICH, where trees are recursive doubling and halving; and, for the ring
of an all-reduce, of Patarasu and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters
of workstations. Efficiency is the share of an update that is not spent on communication and on the
other devices' gradients. The model assumes no overlap and no congestion.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import functools
import math
import statistics
import sys
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
)
from benchmarks.harness.files import write_rows
from benchmarks.harness.process.clock import seconds_of
from benchmarks.harness.results import markdown, spread
from benchmarks.harness.workloads import SuiteError

_SCRIPT = "benchmarks/communication.py"
_ENV = "cartpole-control"
# Agents whose gradient steps are a scan, so that the program states their number.
AGENTS = ("ppo", "pqn")
_NUM_ENVS, _NUM_SHARDS = 256, 8
_STEPS_PER_ENV = 1_000_000
_DEVICES = (8, 64, 1_024)
_ENOUGH = 0.8
_ROUNDS = 15
_REPEATS = 16  # repetitions of adding up gradients in one call
_GATHER = "all_gather"
ALGORITHMS = ("ring", "tree")


@dataclass(frozen=True)
class Network:
    """A published network.

    Attributes:
        name: its name in the table.
        bytes_per_s: the nominal bandwidth of a link in one direction.
        latency_s: the latency of one step of a collective.
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
        primitive: JAX's name for it.
        num_bytes: the bytes of one shard, or of the sum over all shards.
        times: how often an update runs it.
    """

    primitive: str
    num_bytes: int
    times: int

    def seconds(self, num_devices: int, network: Network, algorithm: str) -> float:
        """Return the seconds of all its runs in an update, by the formulas above."""
        others = num_devices - 1
        steps = others if algorithm == "ring" else math.ceil(math.log2(num_devices))
        moved = others * self.num_bytes
        if self.primitive != _GATHER:
            steps *= 2
            moved *= 2 / num_devices
        return self.times * (steps * network.latency_s + moved / network.bytes_per_s)


@dataclass(frozen=True)
class MeasuredTraining:
    """A training as it was measured on one device.

    Attributes:
        reduction: the way in which its gradients are added up.
        seconds: the seconds of one shard's part of an update, one number per round.
        collectives: the collectives of an update, the gradient's first.
        adding_s: the seconds of adding up gradients once, by the number of shards.
    """

    reduction: str
    seconds: Sequence[float]
    collectives: Sequence[Collective]
    adding_s: dict[int, float]

    @property
    def shard_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.seconds)

    def efficiency(self, num_devices: int, network: Network, algorithm: str) -> float:
        """Return the share of an update on `num_devices` devices that is a device's own work."""
        told = sum(each.seconds(num_devices, network, algorithm) for each in self.collectives)
        added = self.collectives[0].times * self.adding_s.get(num_devices, 0.0)
        return self.shard_s / (self.shard_s + told + added)


@dataclass(frozen=True)
class Estimate:
    """A row of the table.

    Attributes:
        most_devices: the largest power of two that keeps an efficiency of four fifths; 1 if two
            devices don't.
    """

    network: str
    reduction: str
    algorithm: str
    num_devices: int
    efficiency: float
    most_devices: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    options = _parse(argv)
    networks = _networks(options)
    command = command_of(_SCRIPT, argv)
    # Measure the work of one device, even if this machine has more.
    myriad.configure(1)
    measured = measure(options)
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
        help=f"number of shards on the measured device (default: {_NUM_SHARDS})",
    )
    parser.add_argument(
        "--devices",
        type=count,
        nargs="+",
        default=_DEVICES,
        metavar="N",
        help=f"numbers of devices, powers of two (default: {' '.join(map(str, _DEVICES))})",
    )
    parser.add_argument(
        "--rounds",
        type=count,
        default=_ROUNDS,
        help=f"rounds, each of which calls everything once (default: {_ROUNDS})",
    )
    parser.add_argument(
        "--bandwidth-gbit",
        type=float,
        metavar="GBIT",
        help="bandwidth of your own network in Gbit/s",
    )
    parser.add_argument(
        "--latency-us", type=float, metavar="US", help="latency of its steps in microseconds"
    )
    parser.add_output("cell")
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
                f"{name} must be a number above 0 if you give --bandwidth-gbit or --latency-us, "
                f"but got {value}."
            )
    bandwidth, latency = given
    name = f"{bandwidth:g} Gbit/s, {latency:g} us"
    return (Network(name, 1e9 * bandwidth / 8, 1e-6 * latency),)


def measure(options: argparse.Namespace) -> list[MeasuredTraining]:
    """Measure a sharded training on one device: its reductions and the adding up, in turns."""
    from myriad.timing import interleave

    reductions = ("exact", "fast")
    found = [_prepared(options, reduction) for reduction in reductions]
    columns = found[0][0][0].num_bytes // 4
    numbers = _powers_of_two(max(options.devices))
    calls = [update for _, update in found] + [adding(number, columns) for number in numbers]
    for call in calls:
        call()  # compiles
    samplers = [functools.partial(seconds_of, call) for call in calls]
    samples = interleave(samplers, least_rounds=options.rounds, most_rounds=options.rounds)
    medians = [statistics.median(each) / _REPEATS for each in samples[len(found) :]]
    measured = []
    for reduction, (collectives, _), update_s in zip(reductions, found, samples, strict=False):
        # The device runs one shard after another, so a shard takes its share of the time. Work that
        # an update does once only counts in part, so the estimate of the efficiency is too low.
        shard_s = [seconds / options.num_shards for seconds in update_s]
        adding_s = dict(zip(numbers, medians, strict=True)) if reduction == "exact" else {}
        measured.append(MeasuredTraining(reduction, shard_s, collectives, adding_s))
    return measured


def _prepared(
    options: argparse.Namespace, reduction: str
) -> tuple[list[Collective], Callable[[], None]]:
    """Compile a training.

    Return the collectives of an update, and a function that runs one update.
    """
    import jax
    import numpy as np

    from myriad import create_config
    from myriad.random import make_key
    from myriad.training.loop import LearningLoop
    from myriad.xla import result_shapes

    resolved = create_config(
        resolved_env(options.env),
        options.agent,
        options.num_envs,
        _STEPS_PER_ENV,
        num_shards=options.num_shards,
        reduction=reduction,
    ).resolve()
    learner = resolved.learner.scheduled(resolved.num_updates)
    loop = LearningLoop(resolved.env, learner, resolved.num_envs, num_devices=1)
    init, run = loop.jitted()
    first = init.trace(make_key(0))
    one, begin = np.int32(1), np.bool_(False)  # noqa: FBT003
    running = run.trace(result_shapes(first), one, begin)
    program = running.lower().compile()
    state = first.lower().compile()(make_key(0))

    def update() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(program(state, one, begin))

    return collectives_of(running.jaxpr.jaxpr, options.num_shards), update


def adding(num_shards: int, columns: int) -> Callable[[], None]:
    """Return a function that averages gathered gradients `_REPEATS` times, as gradient steps do."""
    import jax
    import jax.numpy as jnp

    from myriad.agents.shards import SHARD_AXIS, Shards, shard_mesh

    mean = Shards(num_shards).mean

    def repeated(gradients: jax.Array) -> jax.Array:
        def once(_: jax.Array, total: jax.Array) -> jax.Array:
            # Otherwise the compiler would move the average out of the loop and compute it once.
            same, total = jax.lax.optimization_barrier((gradients, total))
            return total + mean(same)

        # The repetitions are one program, since a call takes longer than adding up a few gradients.
        return jax.lax.fori_loop(0, _REPEATS, once, jnp.zeros(columns))

    by_shard = jax.P(SHARD_AXIS)
    program = jax.jit(
        jax.shard_map(
            repeated, mesh=shard_mesh(1), in_specs=by_shard, out_specs=jax.P(), check_vma=False
        )
    )
    gradients = jnp.ones((num_shards, columns))

    def add() -> None:
        jax.block_until_ready(program(gradients))

    return add


def collectives_of(jaxpr: Any, num_shards: int) -> list[Collective]:
    """Return the collectives of one update, the one that moves the most bytes first."""
    found: dict[tuple[str, int], int] = {}
    for equation, times in _repeated(jaxpr, 1):
        name = equation.primitive.name
        if name == _GATHER or name.startswith(("psum", "pmax", "pmin")):
            # The collective gathers all shards of a device, of which there will be one.
            share = num_shards if name == _GATHER else 1
            key = name, sum(x.aval.size * x.aval.dtype.itemsize for x in equation.invars) // share
            found[key] = found.get(key, 0) + times
    every = [Collective(*key, times) for key, times in found.items()]
    return sorted(every, key=lambda each: -each.num_bytes * each.times)


def _repeated(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    """Yield the operations of a program, and how often an update runs each.

    A loop of unknown length counts once. That is the loop over updates, and any loop of one pass.
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
    measured: Sequence[MeasuredTraining], networks: Sequence[Network], devices: Sequence[int]
) -> Iterator[Estimate]:
    """Yield the estimates for all networks, reductions, algorithms and numbers of devices."""
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


def _described(measured: MeasuredTraining, num_shards: int) -> str:
    gradient, *others = measured.collectives
    num_others = sum(each.times for each in others)
    other_bytes = sum(each.times * each.num_bytes for each in others)
    found = spread([1e3 * seconds for seconds in measured.seconds], "ms")
    took = f"{found['ms']:.3f} ms ({found['ms_low']:.3f} to {found['ms_high']:.3f})"
    text = (
        f"{measured.reduction}: a shard's part of an update takes {took}, one of {num_shards}. "
        f"It has {gradient.times} gradient steps of {gradient.num_bytes:,} bytes by "
        f"{gradient.primitive}, and {num_others} other collectives of {other_bytes:,} bytes in all."
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
