"""Find out which process of a training this is, and where its processes meet.

Flags, `MYRIAD_*` or the launcher's own variables say so. The launcher is SLURM, Open MPI or an
indexed Job of Kubernetes. Nothing here loads JAX.
"""

import dataclasses
import os
import re
import shlex
import signal
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError, shown
from myriad.settings import Settings

# Exit codes of a process that ends because another one is gone, by an error or by an interrupt.
LOST, REFUSED, INTERRUPTED = 1, 2, 128 + signal.SIGINT
# A job's port is drawn from this range, below the ports that Linux uses for outgoing connections.
_FIRST_PORT = 20_000
_NUM_PORTS = 10_000
_GIVEN = "--coordinator host:port, --num-processes and --process-id"


@dataclasses.dataclass(frozen=True)
class Launch:
    """A process among those of one training.

    Attributes:
        coordinator: host and port at which process 0 listens, such as "10.0.0.1:20123".
        num_processes: how many processes there are.
        process_id: the number of this process, from 0.
        local_rank: its number among the processes on this host; None if unknown.
        local_processes: number of processes on this host; 1 if unknown. If all meet at a loopback
            address, such as localhost, they are all on this host.
        start_timeout_s: seconds within which all processes must find each other.

    Raises:
        InvalidArgumentError: a value can't be used.
    """

    coordinator: str
    num_processes: int
    process_id: int
    local_rank: int | None = None
    local_processes: int = 1
    start_timeout_s: int = 60

    def __post_init__(self):
        """Refuse impossible values."""
        host, colon, port = self.coordinator.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InvalidArgumentError(
                "coordinator must be a host and a port, such as localhost:20123, "
                f"but got {shown(self.coordinator)}."
            )
        if self.num_processes < 1:
            raise InvalidArgumentError(
                f"num_processes must be an integer of at least 1, but got {self.num_processes}."
            )
        if not 0 <= self.process_id < self.num_processes:
            raise InvalidArgumentError(
                f"process_id must be an integer from 0 to {self.num_processes - 1}, since there "
                f"are {self.num_processes} processes, but got {self.process_id}."
            )
        if not isinstance(self.start_timeout_s, int) or self.start_timeout_s < 1:
            raise InvalidArgumentError(
                "start_timeout_s must be an integer of at least 1, but got "
                f"{shown(self.start_timeout_s)}."
            )
        if self.local_rank is None and re.match(r"localhost$|127\.|\[?::1\]?$", host):
            object.__setattr__(self, "local_rank", self.process_id)
            object.__setattr__(self, "local_processes", self.num_processes)


@dataclasses.dataclass(frozen=True)
class _Found:
    """The values that a launcher's variables give. Others are None."""

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    local_rank: int | None = None
    local_processes: int = 1


def find_launch(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Launch:
    """Return which process this is.

    Values that you leave out come from `MYRIAD_COORDINATOR`, `MYRIAD_NUM_PROCESSES` and
    `MYRIAD_PROCESS_ID`, or else from the launcher. `MYRIAD_START_TIMEOUT_S` sets how long the
    processes wait for each other.

    Args:
        coordinator: host and port of process 0.
        num_processes: how many processes there are.
        process_id: the number of this process.
        environ: the variables; by default those of this process.
        folder: a folder whose `.env` may also set `MYRIAD_*`; None reads no file.

    Raises:
        InvalidArgumentError: something is missing, or a value can't be used.

    Example:
        >>> find_launch("localhost:20123", 2, 1, {}).process_id
        1
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    environ = os.environ if environ is None else environ
    settings = Settings.read(folder, environ, only={*given, "start_timeout_s"})
    launcher, found = _launcher(environ)
    values = {
        name: _first(value, getattr(settings, name), getattr(found, name))
        for name, value in given.items()
    }
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is None]
    if len(missing) == len(values):
        raise InvalidArgumentError(
            "--distributed needs a launcher, such as srun or mpirun, or "
            f"{_GIVEN}, but found none of them."
        )
    if missing:
        missing_from = f"not among what {launcher} says" if launcher else "missing"
        raise InvalidArgumentError(
            f"--distributed needs {_GIVEN}, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} {missing_from}: give a flag, or set "
            f"{' and '.join(_variable(flag) for flag in missing)}."
        )
    if settings.start_timeout_s is not None:
        values["start_timeout_s"] = settings.start_timeout_s
    return Launch(**values, local_rank=found.local_rank, local_processes=found.local_processes)


def _first(*values: Any) -> Any:
    """Return the first value that is not None, or None."""
    return next((value for value in values if value is not None), None)


def how_to_resume(run_folder: Path | None) -> str:
    """Say how to resume a training in several processes, or return nothing without a folder."""
    if run_folder is None:
        return ""
    return (
        "; to go on from the newest checkpoint, start all processes as before, but with "
        f"`myriad train --distributed --resume {shlex.quote(str(run_folder))}`"
    )


def _launcher(environ: Mapping[str, str]) -> tuple[str, _Found]:
    """Return the launcher that started this process, if any, and the values that it gives."""
    launchers: dict[str, tuple[str, Callable[[Mapping[str, str]], _Found]]] = {
        # Open MPI comes first, since mpirun in a SLURM job passes the job's variables on as well.
        "OMPI_COMM_WORLD_RANK": ("mpirun", _of_open_mpi),
        "SLURM_PROCID": ("srun", _of_slurm),
        "JOB_COMPLETION_INDEX": ("the Job of Kubernetes", _of_kubernetes),
    }
    for variable, (name, read) in launchers.items():
        if variable in environ:
            return name, read(environ)
    return "", _Found()


def _of_slurm(environ: Mapping[str, str]) -> _Found:
    # Prefer the variables of a step. With a single step, those of the whole job are the same.
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    job = f"{environ.get('SLURM_JOB_ID')}.{environ.get('SLURM_STEP_ID')}"
    local = _number(environ, "SLURM_LOCALID")
    on_host = re.match(r"\d+", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    return _Found(
        coordinator=f"{_first_host(nodes)}:{_port(job)}" if nodes else None,
        num_processes=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        process_id=_number(environ, "SLURM_PROCID"),
        local_rank=local,
        local_processes=int(on_host[0]) if on_host else 1,
    )


def _of_open_mpi(environ: Mapping[str, str]) -> _Found:
    size = _number(environ, "OMPI_COMM_WORLD_SIZE")
    on_host = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE") or 1
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
    host = None
    if size == on_host:
        host = "127.0.0.1"
    elif contact := re.search(r"tcp://([\d.]+)", environ.get("OMPI_MCA_orte_hnp_uri", "")):
        # The host of mpirun, which starts process 0 on its own host.
        host = contact[1]
    return _Found(
        coordinator=f"{host}:{_port(job)}" if host and job else None,
        num_processes=size,
        process_id=_number(environ, "OMPI_COMM_WORLD_RANK"),
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_processes=on_host,
    )


def _of_kubernetes(environ: Mapping[str, str]) -> _Found:
    # The Job's manifest sets the others.
    return _Found(process_id=_number(environ, "JOB_COMPLETION_INDEX"))


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the value of the first variable that is set."""
    for name in names:
        if (text := environ.get(name)) is None:
            continue
        if not text.isdecimal():
            raise InvalidArgumentError(f"{name} must be an integer, but is {shown(text)}.")
        return int(text)
    return None


def _first_host(nodes: str) -> str:
    """Return the first name in a list such as `node[003-007,9],other`."""
    prefix, _, rest = nodes.partition("[")
    if "," in prefix or not rest:
        return prefix.partition(",")[0]
    ranges, _, suffix = rest.partition("]")
    first = re.split(r"[-,]", ranges)[0]
    return f"{prefix}{first}{suffix.partition(',')[0]}"


def _port(job: str) -> int:
    """Return a port that is the same for all processes of a job and rarely that of another job."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % _NUM_PORTS


def _variable(flag: str) -> str:
    return f"MYRIAD_{flag.removeprefix('--').replace('-', '_').upper()}"
