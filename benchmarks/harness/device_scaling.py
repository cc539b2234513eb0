"""How rollouts and trainings scale over the devices of one process: `throughput.py --devices`.

With strong scaling all devices share the workload's environments. With weak scaling each device has
that many environments. Each number of devices runs in a process of its own. On a CPU each device
has one core. All of them are called in turns, in a new order every round.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from benchmarks.harness.alternation import in_turns
from benchmarks.harness.process import Reply, started
from benchmarks.harness.programs import STEPS_PER_ENV, RolloutProgram, machine
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import ResultsFile, spread
from benchmarks.harness.tables import between, markdown, span_of
from benchmarks.harness.worker import ChildError, calibrated
from benchmarks.harness.workload import Workload

_TIMEOUT_S = 600.0
_SAMPLE_S = 0.25  # the least that a call lasts
# After this many steps the episodes of a random policy have staggered ages.
_BURN_IN_STEPS = 100


class Point(NamedTuple):
    """A number of devices, and the environments on all of them."""

    num_devices: int
    num_envs: int


def device_counts(usable: int) -> list[int]:
    """Return 1, 2, 4, ... up to the number of devices."""
    return [1 << power for power in range(usable.bit_length())]


def curves(num_envs: int, counts: Sequence[int]) -> dict[str, list[Point]]:
    """Return the points of each scaling, beginning with `num_envs` on one device."""
    counts = list(dict.fromkeys([1, *counts]))
    return {
        "strong": [Point(number, num_envs) for number in counts],
        "weak": [Point(number, num_envs * number) for number in counts],
    }


def measure_scaling(
    workloads: Sequence[Workload], counts: Sequence[int], rounds: int, file: ResultsFile
) -> None:
    """Measure the curves of what workloads run on one device, save their rows and print them.

    Without `counts` the numbers of devices are 1, 2, 4, ... up to all.

    Raises:
        SuiteError: there are fewer devices, or they can't divide the environments equally.
    """
    here = machine()
    columns, usable = here["columns"], here["usable_devices"]
    counts = counts or device_counts(usable)
    if max(counts) > usable:
        is_cpu = columns["device"] == "cpu"
        what = "cores that this process may use" if is_cpu else "devices that JAX sees"
        raise SuiteError(
            f"--devices must be at most {usable}, the {what}, but got {max(counts)}: "
            "devices that share a core show nothing about speed."
        )
    for declared in workloads:
        for number in counts:
            if declared.num_envs % number:
                raise SuiteError(
                    f"--devices must divide the {declared.num_envs:,} environments of "
                    f"{declared.name}, but got {number}."
                )
        described = columns | {"env": declared.env, "agent": declared.agent}
        described["scan_chunk_size"] = declared.scan_chunk_size
        wanted = curves(declared.num_envs, counts)
        try:
            prepared, rates = _rates(declared, wanted, rounds, columns["device"])
        except ChildError as error:
            file.add([described | error.columns], {})
            continue
        for name, curve in wanted.items():
            one = rates[curve[0]]
            rows = []
            points = []
            lines = []
            for point in curve:
                own = rates[point]
                sizes = {"devices": point.num_devices, "processes": 1, "num_envs": point.num_envs}
                efficiency = [a / (point.num_devices * b) for a, b in zip(own, one, strict=True)]
                row = described | sizes | {"arm": name, "num_steps": prepared[point]["num_steps"]}
                row |= spread(own, "steps_per_s") | spread(efficiency, "efficiency")
                rows.append(row)
                points.append(sizes | {"steps_per_s": own})
                shown = between(row, "efficiency") if point.num_devices > 1 else "1"
                rate = f"{row['steps_per_s']:,.0f}"
                lines.append([f"{point.num_devices}", f"{point.num_envs:,}", rate, shown])
            where = {"env": described["env"], "agent": described["agent"]}
            file.add(rows, where | {"scaling": name, "points": points})
            print(f"\n{described['agent']} on {described['env']}, {name}\n")
            headers = ("devices", "environments", "steps/s", f"efficiency ({span_of(one)})")
            print(markdown(headers, lines))


def _rates(
    declared: Workload, wanted: Mapping[str, Sequence[Point]], rounds: int, device: str
) -> tuple[dict[Point, Reply], dict[Point, list[float]]]:
    """Call all points of a workload in turns. Return what they prepared, and their steps/s."""
    prepared: dict[Point, Reply] = {}
    samplers: dict[Point, Callable[[], float]] = {}
    with contextlib.ExitStack() as stack:
        # They prepare one after another, so that each finds its call's length undisturbed.
        for point in dict.fromkeys(point for curve in wanted.values() for point in curve):
            variables = {"JAX_NUM_CPU_DEVICES": f"{point.num_devices}"}
            if device != "cpu":  # A training uses all devices that it sees.
                seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(4096)))
                own = seen.split(",")[: point.num_devices]
                variables = {
                    "CUDA_VISIBLE_DEVICES": ",".join(own),
                    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                }
            request = {"workload": asdict(declared), "point": point}
            child = stack.enter_context(
                started("benchmarks.harness.device_scaling:prepare", request, variables)
            )
            prepared[point] = child.reply(_TIMEOUT_S)
            samplers[point] = lambda child=child: child.ask({}, _TIMEOUT_S)["seconds"]
        samples = in_turns(samplers, rounds)
    return prepared, {
        point: [prepared[point]["num_steps"] / seconds for seconds in own]
        for point, own in samples.items()
    }


# --- in the process of a point


def prepare(workload: dict[str, Any], point: Sequence[int]) -> tuple[Reply, Callable[[], None]]:
    """Prepare and describe the calls of one point."""
    wanted = Point(*point)
    # This comes first, because XLA starts one thread for each core that its process may use.
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: wanted.num_devices])
    import myriad

    myriad.configure(wanted.num_devices)
    built = ready(Workload(**workload), wanted)
    num_steps = calibrated(built.run, built.scan_chunk_size, _SAMPLE_S)
    reply = {"num_steps": num_steps * wanted.num_envs}
    return reply, functools.partial(built.run, num_steps)


def ready(declared: Workload, point: Point) -> Any:
    """Compile a point's program, warm it up and return it."""
    if declared.agent == "random":
        from myriad import make_agent, make_env

        env = make_env(declared.env)
        agent = make_agent("random", env)
        sizes = (point.num_envs, declared.scan_chunk_size)
        built: Any = RolloutProgram(env, agent, *sizes, num_devices=point.num_devices)
        built.start()
        built.run(_BURN_IN_STEPS)
    else:
        from myriad import create_config
        from myriad.programs import TrainingProgram

        # The hyperparameters are always those for the declared number of environments. So weak
        # scaling only changes the number of environments.
        sizes = (declared.num_envs, STEPS_PER_ENV, declared.scan_chunk_size)
        config = create_config(declared.env, declared.agent, *sizes, num_devices=point.num_devices)
        fields: dict[str, Any] = config.fields() | {"num_envs": point.num_envs}
        built = TrainingProgram(create_config(**fields))
        built.warm_up()
    if built.num_devices != point.num_devices:
        raise NotImplementedError(
            f"{point.num_devices} devices were asked for, but it runs on {built.num_devices}"
        )
    built.run(built.scan_chunk_size)  # compiles what the first call of this length needs
    return built
