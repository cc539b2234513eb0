"""Measure how rollouts and trainings scale over devices and processes.

    python benchmarks/devices.py                    the quick workloads, on 1, 2, 4, ... devices
    python benchmarks/devices.py --full             all workloads of suite.toml
    python benchmarks/devices.py --devices 1 2 --processes 1 2 --rounds 20

An asv suite and a command line. With strong scaling all devices share the workload's environments.
With weak scaling each device has that many environments. Each number of devices runs in processes
of its own: in one, and in two that divide the devices between them. On a CPU each device has one
core. All places are called in turns, in a new order every round.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import contextlib
import dataclasses
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.harness import handles
from benchmarks.harness.asv_suite import AsvSuite, names_of, skip_unless_several_cores
from benchmarks.harness.process.child import Reply, TimedGroup
from benchmarks.harness.process.clock import seconds_of
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.programs import STEPS_PER_ENV, machine
from benchmarks.harness.results import Row, markdown, spread
from benchmarks.harness.workloads import (
    SuiteError,
    Workload,
    known,
    load,
    tier_from_environment,
)
from benchmarks.runner import (
    ENV,
    Run,
    Script,
    between,
    count,
    in_turns,
    resolved_env,
    span_of,
    switch,
    text,
    whole,
)

STRONG, WEAK = SCALINGS = ("strong", "weak")
_PROCESSES = (1, 2)
_ROUNDS = 15
_TIMEOUT_S = 600.0
_SAMPLE_S = 0.25  # the least that a call lasts
_MOST_UNITS = 1 << 20
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

    @property
    def arm(self) -> str:
        """Its name in the tables, besides its devices and environments."""
        return f"{self.num_processes} processes" if self.num_processes > 1 else ""


class SeveralCores(AsvSuite):
    """Seconds of a call that the devices of all cores share; gate.toml unpins it."""

    suite = "devices"
    params: ClassVar = names_of(suite)
    param_names: ClassVar = ["workload"]
    version = "1"

    def prepare(self, declared: Workload) -> None:
        skip_unless_several_cores()
        from myriad.host import usable_cores

        most = max(device_counts(usable_cores()))
        self.timed = _timed(declared, Place(most, declared.num_envs))

    def time_call(self, workload: str) -> None:
        """Step or train, and wait for every device."""
        self.timed.call()

    def program(self, workload: str) -> Any:
        """Return the compiled chunk or updates, for the gate."""
        return self.timed.program


class _TimedRollout:
    """A rollout and its state. The unit of a call is a chunk."""

    def __init__(self, declared: Workload, place: Place):
        from myriad import Rollout, make_agent, make_env

        env = make_env(declared.env)
        self._rollout = Rollout(
            env,
            make_agent(declared.agent, env),
            place.num_envs,
            declared.scan_chunk_size,
            num_devices=place.num_devices,
        )
        self.state = self._rollout.init(seed=0)
        self.num_devices = self._rollout.layout.num_devices
        self.steps_per_unit = place.num_envs * declared.scan_chunk_size
        self.num_units = -(-_BURN_IN_STEPS // declared.scan_chunk_size)
        self.call()

    @property
    def program(self) -> Any:
        """The compiled chunk."""
        return self._rollout.compile(self.state)

    def call(self) -> None:
        """Step every environment through `num_units` chunks."""
        from myriad import timing

        for _ in range(self.num_units):
            self.state = self._rollout.run_chunk(self.state)
        timing.block_until_ready(self.state)


class _TimedTraining:
    """A training and its state. The unit of a call is an update."""

    def __init__(self, declared: Workload, place: Place):
        self._training = handles.TrainingProgram(training_config(declared, place))
        self._training.warm_up()
        self.program = self._training.updates
        self.num_devices = self._training.num_devices
        self.steps_per_unit = self._training.steps_per_update
        self.num_units = 1
        self.call()

    @property
    def state(self) -> Any:
        """The state of the training."""
        return self._training.state

    def call(self) -> None:
        """Train through `num_units` updates, until the last report has been fetched."""
        self._training.run_updates(self.num_units)


def training_config(declared: Workload, place: Place) -> Any:
    """Return the configuration of a training.

    The hyperparameters are always those for the declared number of environments. So weak scaling
    only changes the number of environments.
    """
    from myriad import create_config
    from myriad.errors import UnknownNameError

    sizes = (declared.num_envs, STEPS_PER_ENV, declared.scan_chunk_size)
    config: Any
    try:
        config = create_config(declared.env, declared.agent, *sizes, num_devices=place.num_devices)
    except UnknownNameError as error:
        raise NotImplementedError("this commit has no num_devices") from error
    changes: dict[str, Any] = {"num_envs": place.num_envs}
    if hasattr(config, "resolve"):  # an older commit
        return config.resolve().config.model_copy(update=changes)
    return create_config(**config.fields() | changes)


def _timed(declared: Workload, place: Place) -> _TimedRollout | _TimedTraining:
    """Compile and warm up a place's program, and make its calls long enough."""
    kind = _TimedRollout if declared.agent == "random" else _TimedTraining
    timed = kind(declared, place)
    if timed.num_devices != place.num_devices:
        raise NotImplementedError(
            f"{place.num_devices} devices were asked for, but it runs on {timed.num_devices}"
        )
    timed.num_units = 1
    while (seconds := _of_process_0(seconds_of(timed.call))) < _SAMPLE_S:
        if timed.num_units >= _MOST_UNITS:
            break
        timed.num_units *= max(2, round(_SAMPLE_S / seconds))
    return timed


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
    timed = _timed(Workload(**workload), wanted)
    whole, sharded = state_bytes(timed.state)
    prepared = {
        "num_steps": timed.num_units * timed.steps_per_unit,
        "state_bytes": whole,
        "sharded_bytes": sharded,
    }
    return prepared, timed.call


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


def _run_all(run: Run) -> None:
    options = run.options
    workloads = _chosen(options)
    here = machine()
    columns, usable = here["columns"], here["usable_devices"]
    _require_usable(options.devices, columns["device"], usable)
    for declared in workloads:
        wanted = options.devices or device_counts(usable)
        most = max(*_PROCESSES, *wanted)
        if max(options.processes) > most:
            raise SuiteError(
                f"--processes must be at most {most}, the most devices of {declared.name}, "
                f"but got {max(options.processes)}."
            )
        shared = {number: _shared_out(number, options.processes) for number in (1, *wanted)}
        _measure(declared, shared, columns, run)


def _chosen(options: Any) -> list[Workload]:
    declared = load().workloads["devices"]
    names = options.workload or [
        name
        for name, each in declared.items()
        if options.full or options.env or tier_from_environment() in each.tiers
    ]
    env = options.env and resolved_env(options.env)
    found = [declared[known(name, declared, "workload")] for name in names]
    found = [each for each in found if env in (None, each.env)]
    if not found:
        raise SuiteError(f"suite.toml declares no workload of devices in {env}.")
    return found


def _require_usable(wanted: Sequence[int] | None, kind: str, usable: int) -> None:
    """Refuse devices that would share a core, and tell the user if only one can be measured."""
    what = "cores that this process may use" if kind == "cpu" else "devices that JAX sees"
    if wanted and max(wanted) > usable:
        raise SuiteError(
            f"--devices must be at most {usable}, the {what}, but got {max(wanted)}: "
            "devices that share a core show nothing about speed."
        )
    if usable == 1 and not wanted:
        print(f"Only one device is measured, since 1 is the number of {what}.", file=sys.stderr)


def _shared_out(num_devices: int, processes: Sequence[int]) -> list[int]:
    """Return the numbers of processes that can divide the devices equally."""
    return [number for number in dict.fromkeys(processes) if num_devices % number == 0] or [1]


def places(declared: Workload, counts: Mapping[int, Sequence[int]]) -> dict[Place, None]:
    """Return the places of a workload without repetitions, in a fixed order.

    Args:
        declared: the workload.
        counts: numbers of devices, each with the numbers of processes that divide them.
    """
    found: dict[Place, None] = {}
    for num_devices, processes in counts.items():
        for num_processes in processes:
            for scaling in SCALINGS:
                size = _envs_of(scaling, declared.num_envs, num_devices)
                found[Place(num_devices, size, num_processes)] = None
    return found


def _envs_of(scaling: str, num_envs: int, num_devices: int) -> int:
    return num_envs if scaling == STRONG else num_envs * num_devices


def _measure(
    declared: Workload, counts: Mapping[int, Sequence[int]], columns: Row, run: Run
) -> None:
    """Call all places of a workload in turns, write their rows and print them."""
    for devices in counts:
        if declared.num_envs % devices:
            raise SuiteError(
                f"--devices must divide the {declared.num_envs:,} environments of "
                f"{declared.name}, but got {devices}."
            )
    wanted = places(declared, counts)
    described = columns | {"env": declared.env, "agent": declared.agent}
    prepared = {}
    try:
        with contextlib.ExitStack() as stack:
            samplers = {}
            # The places prepare one after another, so that each finds its call's length
            # undisturbed.
            for place in wanted:
                group = stack.enter_context(_started(declared, place, columns))
                samplers[place] = group.seconds
                prepared[place] = _joined(group.prepared())
            samples = in_turns(samplers, run.options.rounds)
    except ChildError as error:
        run.add([described | error.columns], {})
        return
    rates = {
        place: [prepared[place]["num_steps"] / seconds for seconds in of_place]
        for place, of_place in samples.items()
    }
    rows = {
        place: described
        | spread(rates[place], "steps_per_s")
        | {
            "num_envs": place.num_envs,
            "scan_chunk_size": declared.scan_chunk_size,
            "num_steps": prepared[place]["num_steps"],
            "devices": place.devices_of_one,
            "processes": place.num_processes,
        }
        for place in wanted
    }
    for scaling, arm, found in _curves(wanted, declared):
        name = ", ".join(filter(None, (scaling, arm)))
        _write_curve(name, {place: rows[place] for place in found}, rates, prepared, declared, run)


def _started(declared: Workload, place: Place, columns: Row) -> TimedGroup:
    """Start the processes of a place."""
    request = {
        "workload": dataclasses.asdict(declared),
        "place": dataclasses.asdict(place),
    }
    numbers = range(place.num_processes)
    several = {
        "MYRIAD_COORDINATOR": f"127.0.0.1:{_free_port()}",
        "MYRIAD_NUM_PROCESSES": str(place.num_processes),
    }
    return TimedGroup(
        "benchmarks.devices:prepare",
        [request] * place.num_processes,
        [
            several
            | {"MYRIAD_PROCESS_ID": str(number)}
            | _environ(place, number, columns["device"])
            for number in numbers
        ],
        timeout_s=_TIMEOUT_S,
    )


def _environ(place: Place, process_id: int, kind: str) -> dict[str, str]:
    """Return the variables that make a process see only its own devices."""
    if kind == "cpu":
        return {"JAX_NUM_CPU_DEVICES": str(place.devices_of_one)}
    # A training uses all devices that it sees.
    seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(4096)))
    first = process_id * place.devices_of_one
    own = seen.split(",")[first : first + place.devices_of_one]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _joined(replies: Sequence[Reply]) -> Reply:
    """Return what the processes prepared together: one call, and the bytes on each device."""
    joined = {"num_steps": replies[0]["num_steps"]}
    for name in ("state_bytes", "sharded_bytes"):
        joined[name] = [size for reply in replies for size in reply[name]]
    return joined


def _curves(
    wanted: Mapping[Place, None], declared: Workload
) -> Iterator[tuple[str, str, list[Place]]]:
    """Yield the scalings of each arm, each with its places in order of devices."""
    one = Place(1, declared.num_envs)
    for arm in dict.fromkeys(place.arm for place in wanted):
        of_arm = [place for place in wanted if place.arm == arm]
        for scaling in SCALINGS:
            of_scaling = [
                place
                for place in of_arm
                if place.num_envs == _envs_of(scaling, declared.num_envs, place.num_devices)
            ]
            yield scaling, arm, list(dict.fromkeys([one, *of_scaling]))


_Rates = Mapping[Place, Sequence[float]]


def _write_curve(
    name: str,
    rows: Mapping[Place, Row],
    rates: _Rates,
    prepared: Mapping[Place, Reply],
    declared: Workload,
    run: Run,
) -> None:
    """Write and print a row for each number of devices, starting with one device."""
    one, *_ = rows
    found = []
    points = []
    lines = []
    for place, row in rows.items():
        ideal = [place.num_devices * rate for rate in rates[one]]
        efficiency = [a / b for a, b in zip(rates[place], ideal, strict=True)]
        bytes_ = {name: prepared[place][name] for name in ("state_bytes", "sharded_bytes")}
        most = {name: max(own) for name, own in bytes_.items()}
        columns = row | spread(efficiency, "efficiency") | most | {"arm": name}
        found.append(columns)
        size = {key: row[key] for key in ("devices", "processes", "num_envs")}
        points.append(size | bytes_ | {"steps_per_s": list(rates[place])})
        lines.append(
            [
                f"{place.num_devices}",
                f"{place.num_envs:,}",
                f"{row['steps_per_s']:,.0f}",
                "1" if place is one else between(columns, "efficiency"),
                *(f"{size:,}" for size in most.values()),
            ]
        )
    where = {"env": declared.env, "agent": declared.agent}
    scaling, _, arm = name.partition(", ")
    run.add(found, where | {"scaling": scaling, "arm": arm, "points": points})
    print(f"\n{declared.agent} on {declared.env}, {name}\n")
    headers = ("devices", "environments", "steps/s", f"efficiency ({span_of(rates[one])})")
    print(markdown((*headers, "bytes of state on a device", "of them sharded"), lines))


SCRIPT = Script(
    "devices",
    __doc__,
    _run_all,
    {
        "--full": switch("measure every workload of suite.toml"),
        "--workload": text(
            "measure only this workload (repeatable)", action="append", metavar="NAME"
        ),
        "--env": ENV,
        "--devices": whole(
            "numbers of devices in addition to 1 (default: 1, 2, 4, ... up to all devices)",
            nargs="+",
        ),
        "--processes": text(
            "numbers of processes that divide the devices equally, if that is possible "
            f"(default: {' '.join(map(str, _PROCESSES))})",
            _PROCESSES,
            type=count,
            nargs="+",
            metavar="N",
        ),
        "--rounds": whole(
            f"rounds, each of which calls everything once (default: {_ROUNDS})", _ROUNDS
        ),
    },
    suite="devices",
    plot="devices",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
