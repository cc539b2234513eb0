"""Every test runs with two CPU devices and XLA's options set, as the command line does."""

import contextlib
import os
import signal
import time
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from myriad import configure

# Programs are compiled anew after so long. Most are of code that is gone by then.
FORGOTTEN_S = 30 * 86_400.0


def kept_programs() -> Path:
    """Return the folder of compiled programs, which lasts from run to run and serves every clone.

    It lies beside the user's own programs, or in this clone where the user has no folder to write
    in. JAX's keys of programs hold the folder's path, so that a copied folder would be no use.
    """
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches) / "myriad" / "tests"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        folder = None
    if folder is None or not os.access(folder, os.W_OK):
        return Path(__file__).parents[1] / ".pytest_cache" / "xla"
    for program in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # Another run tidies too.
            kept = program.stat()
            # A process that was killed as it began to write leaves an empty file.
            if time.time() - kept.st_mtime > FORGOTTEN_S or not kept.st_size:
                program.unlink()
    return folder


# Tests share what they compile: between the two workers, with the processes that they start, and
# with the next run. A test that looks at compiling turns the cache off or brings its own.
CACHE = kept_programs()
os.environ["MYRIAD_COMPILATION_CACHE"] = str(CACHE)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Tests start processes that share a GPU with them: none may take it whole at its start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# A job in a shell's background ignores interrupts, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

configure(cpu_devices=2)
# A first example compiles, and a shared machine is slow at times: no test judges by the clock.
settings.register_profile("myriad", deadline=None)
settings.load_profile("myriad")

# Examples that take over half a second. A docstring can't carry a mark.
SLOW_EXAMPLES = {
    "myriad.adapters.to_gymnax",
    "myriad.agents.networks.attention.Transformer",
    "myriad.agents.networks.cnn.CNN",
    "myriad.envs.checker.check_env",
    "myriad.rollout.Rollout",
    "myriad.training.population.population.Population",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)
