"""Measure how rollouts and trainings scale over devices and processes.

    python benchmarks/devices.py                    the quick workloads, on 1, 2, 4, ... devices
    python benchmarks/devices.py --full             all workloads of suite.toml
    python benchmarks/devices.py --devices 1 2 --processes 1 2 --rounds 20

An asv suite and a command line. With strong scaling all devices share the workload's environments.
With weak scaling each device has that many environments. Each number of devices runs in processes
of its own: in one, and in two that divide the devices between them. On a CPU each device has one
core. All places are called in turns, in a new order every round.
"""

import contextlib
import dataclasses
import functools
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of, skip_unless_several_cores
from benchmarks.harness.process import Conversation, Reply, started
from benchmarks.harness.programs import STEPS_PER_ENV, RolloutProgram, machine
from benchmarks.harness.results import Row, markdown, spread
from benchmarks.harness.worker import ChildError, seconds_of
from benchmarks.harness.workload import Workload
from benchmarks.harness.workloads import SuiteError, chosen
from benchmarks.runner import (
    AGENT,
    ENV,
    Run,
    Script,
    between,
    in_turns,
    span_of,
    switch,
    whole,
)

_PROCESSES = (1, 2)
_BYTES = ("state_bytes", "sharded_bytes")
_ROUNDS = 15
_TIMEOUT_S = 600.0
_SAMPLE_S = 0.25  # the least that a call lasts
_MOST_STEPS = 1 << 20
# After this many steps the episodes of a random policy have staggered ages.
_BURN_IN_STEPS = 100


@dataclass(frozen=True)
class Place:
    """A rollout or training on some devices.

    Attributes:
        num_devices: devices of all processes.
        num_envs: environments on all devices.
        num_processes: processes that divide the devices equally.
    """

    num_devices: int
    num_envs: int
    num_processes: int = 1

    @property
    def devices_of_one(self) -> int:
        """Devices of each process."""
        return self.num_devices // self.num_processes


class SeveralCores(AsvSuite):
    """Seconds of a call that the devices of all cores share; gate.toml unpins it."""

    suite = "devices"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "2"

    def prepare(self, declared: Workload) -> None:
        skip_unless_several_cores()
        from myriad.host import usable_cores

        most = max(device_counts(usable_cores()))
        self.built, self.num_steps = _ready(declared, Place(most, declared.num_envs))

    def time_call(self, workload: str) -> None:
        """Step or train, and wait for every device."""
        self.built.run(self.num_steps)

    def program(self, workload: str) -> Any:
        """Return the compiled chunk or updates, for the gate."""
        return self.built.updates


def training_config(declared: Workload, place: Place) -> Any:
    """Return the configuration of a training.

    The hyperparameters are always those for the declared number of environments. So weak scaling
    only changes the number of environments.
    """
    from myriad import create_config

    sizes = (declared.num_envs, STEPS_PER_ENV, declared.scan_chunk_size)
    config = create_config(declared.env, declared.agent, *sizes, num_devices=place.num_devices)
    fields: dict[str, Any] = config.fields() | {"num_envs": place.num_envs}
    return create_config(**fields)


def _ready(declared: Workload, place: Place) -> tuple[Any, int]:
    """Compile and warm up a place's program. Return it, and the steps of a long enough call."""
    if declared.agent == "random":
        from myriad import make_agent, make_env

        env = make_env(declared.env)
        agent = make_agent("random", env)
        sizes = (place.num_envs, declared.scan_chunk_size)
        built: Any = RolloutProgram(env, agent, *sizes, num_devices=place.num_devices)
        built.start()
        built.run(_BURN_IN_STEPS)
    else:
        from myriad.programs import TrainingProgram

        built = TrainingProgram(training_config(declared, place))
        built.warm_up()
    if built.num_devices != place.num_devices:
        raise NotImplementedError(
            f"{place.num_devices} devices were asked for, but it runs on {built.num_devices}"
        )
    num_steps = built.scan_chunk_size
    built.run(num_steps)  # compiles what the first call of this length needs
    while (seconds := _of_process_0(seconds_of(built.run, num_steps))) < _SAMPLE_S:
        if num_steps >= _MOST_STEPS:
            break
        num_steps *= max(2, round(_SAMPLE_S / seconds))
    return built, num_steps


def _of_process_0(seconds: float) -> float:
    """Return process 0's measurement, so that all processes make equally long calls."""
    import jax

    if jax.process_count() == 1:
        return seconds
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return float(broadcast_one_to_all(seconds))


def prepare(workload: dict[str, Any], place: dict[str, Any]) -> tuple[Reply, Callable[[], None]]:
    """Prepare and describe the calls of one place. Runs in each of its processes."""
    wanted = Place(**place)
    # This comes first, because XLA starts one thread for each core that its process may use.
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        # All processes share the cores of all devices. On a single one, the thread that polls for
        # messages would take it from the thread that computes.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: wanted.num_devices])
    import myriad

    myriad.configure(wanted.devices_of_one, distributed=wanted.num_processes > 1)
    built, num_steps = _ready(Workload(**workload), wanted)
    whole, sharded = state_bytes(built.state)
    prepared = {
        "num_steps": num_steps * wanted.num_envs,
        "state_bytes": whole,
        "sharded_bytes": sharded,
    }
    return prepared, functools.partial(built.run, num_steps)


def state_bytes(state: Any) -> tuple[list[int], list[int]]:
    """Return the bytes of a state on each of its devices.

    Returns:
        the bytes of all arrays, and those of the sharded arrays.
    """
    import jax

    whole: dict[int, int] = {}
    sharded: dict[int, int] = {}
    for leaf in jax.tree.leaves(state):
        is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = jax.random.key_data(leaf) if is_key else leaf
        is_shared = any(getattr(leaf.sharding, "spec", ()))
        for part in array.addressable_shards:
            device = part.device.id
            whole[device] = whole.get(device, 0) + part.data.nbytes
            sharded[device] = sharded.get(device, 0) + is_shared * part.data.nbytes
    return [whole[device] for device in sorted(whole)], [sharded[each] for each in sorted(sharded)]


def device_counts(usable: int) -> list[int]:
    """Return 1, 2, 4, ... up to the number of devices."""
    return [1 << power for power in range(usable.bit_length())]


def curves(
    num_envs: int, counts: Sequence[int], processes: Sequence[int]
) -> dict[str, list[Place]]:
    """Return the places of each scaling of a workload, beginning with one device.

    Args:
        num_envs: environments on one device.
        counts: numbers of devices.
        processes: numbers of processes. One that can't divide a number of devices is left out
            there.
    """
    found = {}
    for number in dict.fromkeys(processes):
        several = f", {number} processes" if number > 1 else ""
        shared = [each for each in dict.fromkeys(counts) if each > 1 and each % number == 0]
        one = Place(1, num_envs)
        found[f"strong{several}"] = [one, *(Place(each, num_envs, number) for each in shared)]
        found[f"weak{several}"] = [one, *(Place(each, num_envs * each, number) for each in shared)]
    return found


def _measure(run: Run) -> None:
    options = run.options
    workloads = chosen("devices", options)
    here = machine()
    columns, usable = here["columns"], here["usable_devices"]
    is_cpu = columns["device"] == "cpu"
    what = "cores that this process may use" if is_cpu else "devices that JAX sees"
    counts = options.devices or device_counts(usable)
    if max(counts) > usable:
        raise SuiteError(
            f"--devices must be at most {usable}, the {what}, but got {max(counts)}: "
            "devices that share a core show nothing about speed."
        )
    if max(counts) == 1:
        print(f"Only one device is measured, since 1 is the number of {what}.", file=sys.stderr)
    for declared in workloads:
        for number in counts:
            if declared.num_envs % number:
                raise SuiteError(
                    f"--devices must divide the {declared.num_envs:,} environments of "
                    f"{declared.name}, but got {number}."
                )
        wanted = curves(declared.num_envs, counts, options.processes or _PROCESSES)
        _measure_curves(declared, wanted, columns, run)


def _measure_curves(
    declared: Workload, wanted: Mapping[str, Sequence[Place]], columns: Row, run: Run
) -> None:
    """Call all places of a workload in turns, write their rows and print them."""
    described = columns | {"env": declared.env, "agent": declared.agent}
    places = dict.fromkeys(place for curve in wanted.values() for place in curve)
    prepared: dict[Place, Reply] = {}
    try:
        with contextlib.ExitStack() as stack:
            samplers = {}
            # The places prepare one after another, so that each finds its call's length
            # undisturbed.
            for place in places:
                processes = [
                    stack.enter_context(each) for each in _started(declared, place, columns)
                ]
                replies = [process.reply(_TIMEOUT_S) for process in processes]
                # What they prepared together: one call, and the bytes on each device.
                prepared[place] = {"num_steps": replies[0]["num_steps"]} | {
                    name: [size for reply in replies for size in reply[name]] for name in _BYTES
                }
                samplers[place] = functools.partial(_seconds, processes)
            samples = in_turns(samplers, run.options.rounds)
    except ChildError as error:
        run.file.add([described | error.columns], {})
        return
    rates = {
        place: [prepared[place]["num_steps"] / seconds for seconds in of_place]
        for place, of_place in samples.items()
    }
    for name, curve in wanted.items():
        _write_curve(
            name, {place: rates[place] for place in curve}, prepared, declared, described, run
        )


def _started(declared: Workload, place: Place, columns: Row) -> Iterator[Conversation]:
    """Start the processes of a place."""
    request = {"workload": dataclasses.asdict(declared), "place": dataclasses.asdict(place)}
    with socket.socket() as listening:  # finds a free port
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    of_all = {
        "MYRIAD_COORDINATOR": f"127.0.0.1:{port}",
        "MYRIAD_NUM_PROCESSES": str(place.num_processes),
    }
    for number in range(place.num_processes):
        own = {"MYRIAD_PROCESS_ID": str(number)}
        if columns["device"] == "cpu":
            own["JAX_NUM_CPU_DEVICES"] = str(place.devices_of_one)
        else:  # A training uses all devices that it sees.
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(4096)))
            first = number * place.devices_of_one
            own["CUDA_VISIBLE_DEVICES"] = ",".join(
                seen.split(",")[first : first + place.devices_of_one]
            )
            own["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        yield started("benchmarks.devices:prepare", request, of_all | own)


def _seconds(processes: Sequence[Conversation]) -> float:
    """Return the seconds of one more call, which last as long as the slowest process."""
    for process in processes:
        process.send({})
    return max(process.reply(_TIMEOUT_S)["seconds"] for process in processes)


def _write_curve(
    name: str,
    rates: Mapping[Place, Sequence[float]],
    prepared: Mapping[Place, Reply],
    declared: Workload,
    described: Row,
    run: Run,
) -> None:
    """Write and print a row for each number of devices, starting with one device."""
    one, *_ = rates.values()
    rows = []
    points = []
    lines = []
    for place, own in rates.items():
        efficiency = [a / (place.num_devices * b) for a, b in zip(own, one, strict=True)]
        bytes_ = {name: prepared[place][name] for name in _BYTES}
        most = {name: max(sizes) for name, sizes in bytes_.items()}
        size = {
            "devices": place.devices_of_one,
            "processes": place.num_processes,
            "num_envs": place.num_envs,
        }
        row = described | size | most | {"arm": name, "scan_chunk_size": declared.scan_chunk_size}
        row |= spread(own, "steps_per_s") | spread(efficiency, "efficiency")
        row["num_steps"] = prepared[place]["num_steps"]
        rows.append(row)
        points.append(size | bytes_ | {"steps_per_s": list(own)})
        shown = between(row, "efficiency") if place.num_devices > 1 else "1"
        cells = [f"{place.num_devices}", f"{place.num_envs:,}", f"{row['steps_per_s']:,.0f}", shown]
        lines.append([*cells, *(f"{each:,}" for each in most.values())])
    where = {"env": declared.env, "agent": declared.agent}
    scaling, _, arm = name.partition(", ")
    run.file.add(rows, where | {"scaling": scaling, "arm": arm, "points": points})
    print(f"\n{declared.agent} on {declared.env}, {name}\n")
    headers = ("devices", "environments", "steps/s", f"efficiency ({span_of(one)})")
    print(markdown((*headers, "bytes of state on a device", "of them sharded"), lines))


SCRIPT = Script(
    "devices",
    __doc__,
    _measure,
    {
        "--full": switch("measure every workload of suite.toml"),
        "--agent": AGENT,
        "--env": ENV,
        "--devices": whole(
            "numbers of devices in addition to 1 (default: 1, 2, 4, ... up to all devices)",
            nargs="+",
        ),
        "--processes": whole(
            "numbers of processes that divide the devices equally (default: 1 2)", nargs="+"
        ),
        "--rounds": whole(
            f"rounds, each of which calls everything once (default: {_ROUNDS})", _ROUNDS
        ),
    },
    suite="devices",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
