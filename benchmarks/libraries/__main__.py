"""Run one library of a comparison, which steps a workload in its own process.

XLA's options are per process, so each way to run a library has its own. harness/alternation.py
starts `python -m benchmarks.libraries NAME`, which answers by server.py. A peer with its own Python
replaces this process by `NAME --peer` there. Nothing of our package can be imported in it, because
`myriad-jax` 0.2.0 is itself imported as `myriad`. So the origin of its package is checked before
anything is measured.
"""

import functools
import importlib
import importlib.metadata
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness.worker import answer
from benchmarks.harness.workload import Case
from benchmarks.libraries import array_libraries, jax_libraries, ours, ppo_training
from benchmarks.libraries.server import Reply, Stepper, replies_to


def hello(name: str) -> Reply:
    """Start JAX's backend with our options, import the library, and describe both."""
    from benchmarks.harness import peers
    from benchmarks.harness.registry import OURS, library_of

    library = library_of(name)
    if library in peers.declared():
        raise ImportError(peers.how_to_install(library))
    if library in array_libraries.ENVS:
        return array_libraries.hello(library)
    import jax

    import myriad
    from myriad import hardware

    if name == OURS:
        myriad.configure()
    elif name.endswith("-configured"):
        myriad.configure(cpu_devices=1)
    # The backend starts first, so that a missing device is reported before the library loads.
    machine = asdict(hardware.fingerprint())
    importlib.import_module(library)
    versions = hardware.package_versions()
    return {
        "hardware": machine,
        "devices": jax.local_device_count(),
        "versions": versions,
        "library": library,
        "library_version": versions.get(library, ""),
    }


def hello_of_peer(name: str) -> Reply:
    """Import a peer in its own Python, and describe it. The parent adds the machine.

    Raises:
        RuntimeError: its package came from outside of this environment.
    """
    package = "myriad" if name == "myriad-jax" else name
    found = Path(str(importlib.import_module(package).__file__)).resolve()
    if not found.is_relative_to(Path(sys.prefix).resolve()):
        raise RuntimeError(
            f"{package} was imported from {found}, outside the environment of {name}"
        )
    if name in array_libraries.ENVS:
        return array_libraries.hello(name)
    import jax

    return {
        "hardware": {"device_kind": jax.default_backend()},
        "devices": jax.local_device_count(),
        "versions": {each: importlib.metadata.version(each) for each in ("jax", "jaxlib", "numpy")},
        "library": name,
        "library_version": importlib.metadata.version(name),
    }


def make_stepper(library: str, case: Case) -> Stepper:
    """Build what steps the workload of a case, whose side may be one way to run the library.

    Raises:
        NotImplementedError: the library can't step this workload.
    """
    workload = case.workload
    if library == "myriad":
        trains = workload.agent == ppo_training.AGENT
        return ours.MyriadTraining(workload) if trains else ours.MyriadStepper(case)
    if not case.env_id:
        raise NotImplementedError(
            f"libraries.toml gives no name of {workload.env} in envs of [{library}]"
        )
    if library in array_libraries.ENVS:
        return array_libraries.make_stepper(case)
    if library in jax_libraries.ENVS:
        return jax_libraries.ScanStepper(jax_libraries.ENVS[library](case.env_id), case)
    return ppo_training.RejaxTraining(workload, case.env_id)


def main() -> None:
    """Run the library that the command line names."""
    name, *is_peer = sys.argv[1:]
    refusals: tuple[type[Exception], ...] = ()
    if is_peer:
        library, said = name, functools.partial(hello_of_peer, name)
    else:
        from benchmarks.harness import peers
        from benchmarks.harness.registry import library_of

        library, said = library_of(name), functools.partial(hello, name)
        if library in peers.declared() and peers.is_installed(library):
            if name != library:
                from myriad import configure

                # sets the environment variables for a program that replaces this process
                configure(cpu_devices=1)
            peers.enter(library)
        # Array libraries fork, and a process that has loaded JAX should not fork.
        if library not in array_libraries.ENVS:
            from myriad.errors import MyriadError

            refusals = (MyriadError,)
    answer(replies_to(sys.stdin, said, functools.partial(make_stepper, library)), refusals)


if __name__ == "__main__":
    main()
