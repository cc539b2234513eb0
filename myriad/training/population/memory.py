"""How much memory many seeds of a training need, and how many of them fit."""

import dataclasses
from collections.abc import Callable

import jax

from myriad.hardware import available_bytes, resolve_platform
from myriad.host import release_freed_memory
from myriad.training.fits import programs_at_a_time
from myriad.training.memory import (
    COPIES,
    EPISODE_BYTES,
    SAVING_SHARE,
    bytes_of,
    least_needs,
    restoring_bytes,
)
from myriad.training.population import Population
from myriad.xla import Stated, require_room


@dataclasses.dataclass(frozen=True)
class SeedNeeds:
    """The most bytes that trainings side by side hold.

    Attributes:
        per_slot: bytes that each training adds.
        per_device: bytes that a device holds in addition to its trainings.
    """

    per_slot: int
    per_device: int

    def bytes(self, num_slots: int, num_devices: int) -> int:
        """Return the bytes of `num_slots` trainings. Every device has equally many slots."""
        slots = -(-num_slots // num_devices) * num_devices
        return slots * self.per_slot + num_devices * self.per_device

    def most(self, room: int, num_devices: int) -> int:
        """Return how many trainings fit into `room` bytes."""
        slots = max(0, room - num_devices * self.per_device) // self.per_slot
        if slots >= num_devices:
            return slots // num_devices * num_devices
        # With fewer trainings than devices, each has its own device.
        return min(num_devices - 1, max(0, room // (self.per_slot + self.per_device)))


def seed_needs(population: Population, *, saves: bool, resumes: bool) -> SeedNeeds:
    """Return what a compiled population needs.

    Args:
        population: the trainings.
        saves: whether checkpoints are saved.
        resumes: whether it begins with a checkpoint.
    """
    is_cpu = resolve_platform() == "cpu"
    slots = -(-population.num_slots // population.num_devices)
    state = bytes_of(population.state_shapes)
    sizes = dict(zip(population.programs.of_devices[0], population.programs.sizes, strict=True))
    scaling = []
    fixed = []
    for name, program in population.programs.of_devices[0].items():
        stated = Stated.of(program)
        held = state + stated.results - stated.aliases
        temporaries = stated.temporaries
        if is_cpu:
            temporaries += COPIES * sizes[name].product_bytes
        if population.mapping == "map":
            # One slot runs at a time, but all states are copied although they are donated.
            copied = min(temporaries, state)
            scaling.append(held + copied)
            fixed.append(temporaries - copied)
        else:
            scaling.append(held + temporaries)
            fixed.append(0)
    # On other devices, a checkpoint is made in the host's memory and not where the states lie.
    if is_cpu:
        joined = state if population.num_devices > 1 else 0
        if saves:
            scaling.append(state + joined + round(SAVING_SHARE * state))
            fixed.append(0)
        if resumes:
            scaling.append(2 * state + restoring_bytes(population.state_shapes))
            fixed.append(0)
    return SeedNeeds(-(-max(scaling) // slots), max(fixed))


def compile_seeds_within_memory(
    population: Population, *, resumes: bool, meanwhile: Callable[[], None]
) -> None:
    """Compile the programs of many seeds, unless they don't fit into memory.

    Args:
        population: the trainings, not compiled yet.
        resumes: whether it begins with a checkpoint.
        meanwhile: called while the compiler works.

    Raises:
        InvalidArgumentError: they don't fit. The message says how many seeds would.
    """
    config = population.config
    least = least_needs(config)
    by_shapes = SeedNeeds(least.state + EPISODE_BYTES * config.eval_rollouts, 0)
    _require_room(population, by_shapes, is_compiled=False)
    what = f"{config.agent} on {config.env}"
    population.compile(lambda sizes: programs_at_a_time(sizes, available_bytes(), what), meanwhile)
    release_freed_memory()
    needs = seed_needs(population, saves=True, resumes=resumes)
    _require_room(population, needs, is_compiled=True)


def _require_room(population: Population, needs: SeedNeeds, *, is_compiled: bool) -> None:
    # All devices of a CPU share its memory.
    num_devices = population.num_devices if jax.default_backend() == "cpu" else 1
    slots = population.num_slots
    if num_devices == 1:
        slots = -(-slots // population.num_devices)

    def remedy(room: int) -> str:
        fits = needs.most(room, num_devices)
        if num_devices == 1:
            fits *= population.num_devices
        at_most = "at most about" if is_compiled else "fewer than"
        return f"{at_most} {fits:,} seeds fit" if fits else "not even one seed fits"

    config = population.config
    require_room(
        f"{population.num_slots:,} seeds of num_envs = {config.num_envs:,} and eval_rollouts = "
        f"{config.eval_rollouts:,}",
        needs.bytes(slots, num_devices),
        remedy,
    )
