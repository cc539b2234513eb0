"""How a process finds the others. What several real ones do is in `training/test_processes.py`."""

import importlib.util

import jax
import pytest

from myriad import distributed
from myriad.distributed import Launch
from myriad.errors import InvalidArgumentError


def test_what_is_not_given_comes_from_variables(monkeypatch):
    monkeypatch.setenv("MYRIAD_COORDINATOR", "there:20123")
    monkeypatch.setenv("MYRIAD_PROCESS_ID", "1")
    monkeypatch.setenv("MYRIAD_HEARTBEAT_TIMEOUT_S", "7")
    given = {"coordinator": None, "num_processes": 2, "process_id": 0}
    assert Launch.read(given) == Launch("there:20123", 2, 0, heartbeat_timeout_s=7)
    for coordinator in ("a", ":1", "a:b", "a:"):
        with pytest.raises(InvalidArgumentError, match="coordinator must be a host and a port"):
            Launch.read(given | {"coordinator": coordinator})


@pytest.mark.parametrize(
    ("variable", "package", "method"),
    [
        ("OMPI_COMM_WORLD_RANK", object(), "mpi4py"),
        ("OMPI_COMM_WORLD_RANK", None, None),
        ("SLURM_PROCID", object(), None),
    ],
)
def test_jax_asks_the_launcher_and_gets_the_time_limits(variable, package, method, monkeypatch):
    asked = {}
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK", raising=False)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: package)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **given: asked.update(given))
    distributed.connect(Launch(start_timeout_s=3, heartbeat_timeout_s=7))
    assert asked == {
        "cluster_detection_method": method,
        "initialization_timeout": 3,
        "heartbeat_timeout_seconds": 7,
        "shutdown_timeout_seconds": 7,
    }
