"""The machine as JAX sees it: its hardware, its platform, and the options that XLA starts with.

Call `configure` first, since XLA reads its options once, when JAX's backend starts.
`resolve_platform` and `fingerprint` start it.
"""

import functools
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import jax

import myriad
from myriad import settings
from myriad.distributed import Launch, connect
from myriad.engine.fusion import FUSED_OUTPUTS, SKIP_PASSES, SKIPPED, WHOLE_LOOPS
from myriad.engine.memory import memory_bytes
from myriad.errors import (
    BackendStartedError,
    DeviceNotFoundError,
    InvalidArgumentError,
    UnknownNameError,
)
from myriad.host import cpu_name, has_512_bit_vectors, usable_cores
from myriad.ranges import Integer, checked

# These values suit the rollout's chunk, which is a loop over steps of elementwise work on arrays
# that fit into the cache.
XLA_CPU_OPTIONS = {
    # A step writes many arrays from the same inputs, and one loop for all of them reads the inputs
    # once. XLA only checks whether the option is there, so "false" would also turn it on. It aborts
    # the process on indexed updates, so `output_fusion` chooses the programs that get it. It is set
    # for the process, since a program's own options can't add to these (jaxlib 0.10.2).
    FUSED_OUTPUTS: "true",
    # A loop that touches fewer bytes than this becomes one function. The default is 1 KB, and every
    # step of a larger loop goes back to the runtime for each of its kernels.
    WHOLE_LOOPS: "1000000000",
    # The default of 256 bits is for processors that slow down under wide vectors. Pure arithmetic
    # gains from wider ones.
    "xla_cpu_prefer_vector_width": "512",
}
# XLA ends the process at an unknown flag in XLA_FLAGS, so only this one is a flag of its own. The
# other options are passed inside --xla_backend_extra_options, in which XLA ignores unknown ones.
_FLAG = "xla_cpu_prefer_vector_width"
_DEVICE_COUNT = "jax_num_cpu_devices"
_DEVICE_COUNT_FLAG = "xla_force_host_platform_device_count"
# The options that `configure` has set in this process, which are not the user's.
_applied: dict[str, str] = {}

_VERSIONED = ("jax", "jaxlib", "numpy", "flax", "optax", "gymnax")


@dataclass(frozen=True)
class Configuration:
    """The options with which XLA starts, or has started, after `configure`.

    The number of devices is the option `jax_num_cpu_devices`.

    Attributes:
        cpu_devices: number of CPU devices that JAX has.
        applied: options that Myriad has set in this process, and their values.
    """

    cpu_devices: int
    applied: Mapping[str, str]


@dataclass(frozen=True)
class Hardware:
    """The machine on which a number was measured.

    Attributes:
        device_kind: the device on which JAX puts its arrays: "cpu", "gpu" or "tpu".
        device_name: the model of the processor or accelerator.
        cores: logical CPU cores that this process may use, see `usable_cores`.
        memory_total_bytes: the accelerator's memory, or RAM up to the limit of the container; None
            if unknown.
        memory_available_bytes: bytes of it that this process can still take; None if unknown.
    """

    device_kind: str
    device_name: str
    cores: int
    memory_total_bytes: int | None
    memory_available_bytes: int | None

    @property
    def slug(self) -> str:
        """Model and memory in one word, such as `AMD-EPYC_24GB` or `RTX4090_24GB`."""
        name = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", " ", self.device_name)
        if self.device_kind != "cpu":
            name = re.sub(r"\b(NVIDIA|AMD|GeForce)\b", " ", name)
        words = re.findall(r"[\w.-]+", name)
        model = ("-" if self.device_kind == "cpu" else "").join(words) or self.device_kind
        if self.memory_total_bytes is None:
            return model
        return f"{model}_{round(self.memory_total_bytes / 2**30)}GB"


@checked
def configure(
    cpu_devices: Annotated[int | None, Integer(1, 4096)] = None,
    *,
    xla_options: bool = True,
    without: Iterable[str] = (),
    distributed: Launch | bool = False,
) -> Configuration:
    """Set XLA's CPU options and the number of CPU devices, unless you have set them.

    An option is yours if `XLA_FLAGS` mentions it. The number of devices is yours if
    `JAX_NUM_CPU_DEVICES`, `jax.config` or `--xla_force_host_platform_device_count` gives it. Child
    processes inherit the options. JAX's backend is not started.

    Args:
        cpu_devices: number of devices into which JAX divides the CPU; by default the usable cores,
            and 1 in each of several processes.
        xla_options: whether to set `XLA_CPU_OPTIONS`. False adds none and removes none.
        without: names in `XLA_CPU_OPTIONS` to leave out, here and in child processes. The
            environment variable `MYRIAD_WITHOUT_XLA_OPTIONS` can name them as well.
        distributed: which process of a training this is, if several processes train together; True
            asks the variables `MYRIAD_*` and the launcher. `jax.distributed.initialize` then waits
            for the others.

    Raises:
        BackendStartedError: JAX's backend has started, and an option would have changed.
        InvalidArgumentError: `cpu_devices` is not an integer from 1 to 4,096, an option to leave
            out is set already, or no launcher says which process this is.
        UnknownNameError: `without` names no option of `XLA_CPU_OPTIONS`.

    Example:
        >>> configuration = configure()  # in a script's first lines
        >>> configuration.cpu_devices
        2
    """
    flags = os.environ.get("XLA_FLAGS", "")
    unwanted = _known_options(without)
    changes = _missing(XLA_CPU_OPTIONS if xla_options else {}, unwanted, flags)
    launch = Launch.read({}) if distributed is True else distributed or None
    # All processes need the same number, whatever their hosts have.
    wanted = cpu_devices or (1 if launch is not None else None)
    # It is -1 if not set. On import, JAX reads JAX_NUM_CPU_DEVICES into it.
    present = getattr(jax.config, _DEVICE_COUNT)
    if present < 0:
        by_flag = re.search(rf"\b{_DEVICE_COUNT_FLAG}=(\d+)", flags)
        present = int(by_flag[1]) if by_flag else None
    devices = present or wanted or usable_cores()
    if present is None or _DEVICE_COUNT in _applied:
        devices = wanted or devices
        if devices != (present or 1):
            changes[_DEVICE_COUNT] = str(devices)
    connects = launch is not None and not jax.distributed.is_initialized()
    late = [*changes, *["distributed"] * connects]
    if late and _backend_started():
        raise BackendStartedError(
            "configure must be called before JAX makes its first array, but its backend has "
            f"started and {', '.join(late)} can no longer be set; "
            "call configure earlier, or not at all."
        )
    if unwanted:
        os.environ[settings.LEFT_OUT] = ",".join(unwanted)  # for child processes, too
    if _DEVICE_COUNT in changes:
        jax.config.update(_DEVICE_COUNT, devices)
    tokens = [
        f"{'--' if name == _FLAG else '--xla_backend_extra_options='}{name}={value}"
        for name, value in changes.items()
        if name != _DEVICE_COUNT
    ]
    if tokens:
        skipped = [SKIPPED] if FUSED_OUTPUTS in changes else []
        os.environ["XLA_FLAGS"] = " ".join([flags, *tokens, *skipped]).strip()
    _applied.update(changes)
    if launch is not None and connects:
        connect(launch)
    return Configuration(devices, dict(_applied))


def _missing(options: Mapping[str, str], unwanted: Sequence[str], flags: str) -> dict[str, str]:
    """Return those of the options that the user has neither set nor left out, and that can be."""
    for name in unwanted:
        if name in options and name in flags:
            raise InvalidArgumentError(
                f"without names {name}, but XLA_FLAGS has it already: take it out of "
                "XLA_FLAGS, or call configure once."
            )
    cannot = {name for name in options if name in flags or name in unwanted}
    if flags and not flags.startswith("--"):
        cannot |= options.keys()  # It names a file of options.
    if SKIP_PASSES in flags:
        cannot.add(FUSED_OUTPUTS)  # It would not be safe.
    if not has_512_bit_vectors():
        cannot.add(_FLAG)
    return {name: value for name, value in options.items() if name not in cannot}


def _known_options(names: Iterable[str]) -> list[str]:
    """Return the names of options to leave out, including those from the environment."""
    chosen = [names] if isinstance(names, str) else [*names]
    for name in chosen:
        if not isinstance(name, str) or name not in XLA_CPU_OPTIONS:
            raise UnknownNameError("XLA option", name, XLA_CPU_OPTIONS)
    names = os.environ.get(settings.LEFT_OUT, "").split(",")
    named = [name.strip() for name in names if name.strip()]
    for name in named:
        if name not in XLA_CPU_OPTIONS:
            error = UnknownNameError("XLA option", name, XLA_CPU_OPTIONS)
            raise InvalidArgumentError(f"{settings.LEFT_OUT}: {error}")
    return list(dict.fromkeys(chosen + named))


def _backend_started() -> bool:
    """Return whether JAX's backend runs."""
    # JAX has no public function for this. But once its backend runs, it refuses to change the
    # number of CPU devices.
    present = getattr(jax.config, _DEVICE_COUNT)
    try:
        jax.config.update(_DEVICE_COUNT, present + 1)
    except RuntimeError:
        return True
    jax.config.update(_DEVICE_COUNT, present)
    return False


def resolve_platform() -> str:
    """Return the platform that JAX runs on: "cpu", "gpu" or "tpu".

    `JAX_PLATFORMS` or `JAX_PLATFORM_NAME` choose it, or else JAX does.

    Raises:
        DeviceNotFoundError: the platform is not on this machine, or JAX lacks its plugin.
    """
    try:
        return jax.default_backend()
    # JAX_PLATFORMS=cuda without its plugin fails an assertion of JAX.
    except (RuntimeError, AssertionError) as error:
        names = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
        asked = " and ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))
        raise DeviceNotFoundError(
            f"JAX finds no such device on this machine: {asked or 'none at all'}; "
            "unset it or choose cpu, or install JAX for that device."
        ) from error


def require_usable_jax() -> None:
    """Raise if JAX's variables keep this process from computing.

    Raises:
        DeviceNotFoundError: see `resolve_platform`.
        InvalidArgumentError: JAX may not copy numbers to the device.
    """
    resolve_platform()
    guard = jax.config.values["jax_transfer_guard"]
    if guard in ("disallow", "disallow_explicit"):
        raise InvalidArgumentError(
            f"JAX_TRANSFER_GUARD is {guard}, but Myriad copies seeds and settings to the device; "
            "unset it."
        )


def is_configured() -> bool:
    """Return whether XLA has options of `configure`, here or from a parent process."""
    flags = os.environ.get("XLA_FLAGS", "")
    return any(name in flags for name in XLA_CPU_OPTIONS)


def fingerprint() -> Hardware:
    """Describe the machine as this process may use it.

    Raises:
        DeviceNotFoundError: see `resolve_platform`.
    """
    kind = resolve_platform()
    name = cpu_name() if kind == "cpu" else jax.local_devices()[0].device_kind
    return Hardware(kind, name, usable_cores(), *memory_bytes(kind))


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a measurement depends on."""
    installed = {name: _installed_version(name) for name in _VERSIONED}
    # A checkout may not be installed.
    return {"python": platform.python_version(), "myriad": myriad.__version__} | {
        name: version for name, version in installed.items() if version
    }


@functools.cache
def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
