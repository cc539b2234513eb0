"""Every test runs with two CPU devices and XLA's options set, as the command line does."""

import contextlib
import os
import signal
import time
from pathlib import Path

import jax
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from myriad import configure
from myriad.cli import main
from myriad.host import host_memory, usable_cores
from myriad.settings import compilation_cache

# Tests share what they compile: between the workers, with the processes that they start, with the
# next run and with every clone. (JAX's keys of programs hold this folder's path.) A test that looks
# at compiling turns the cache off or brings its own.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "xla"
if (programs := compilation_cache()) is not None:
    with contextlib.suppress(OSError):
        programs.with_name("tests").mkdir(parents=True, exist_ok=True)
    if os.access(programs.with_name("tests"), os.W_OK):
        CACHE = programs.with_name("tests")
CACHE.mkdir(parents=True, exist_ok=True)
# Programs that nobody compiled for 30 days are of code that is gone. Those that are empty were
# being written when their process was killed.
for program in CACHE.glob("*-cache"):
    with contextlib.suppress(OSError):  # Another run tidies too.
        if time.time() - program.stat().st_mtime > 30 * 86_400 or not program.stat().st_size:
            program.unlink()
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
    *("myriad.adapters.to_gymnax", "myriad.envs.checker.check_env", "myriad.rollout.Rollout"),
    *("myriad.agents.networks.attention.Transformer", "myriad.agents.networks.cnn.CNN"),
    *("myriad.api.evaluate", "myriad.api.load_agent", "myriad.api.make_train"),
    *("myriad.api.resume", "myriad.api.train_and_evaluate", "myriad.programs.TrainingProgram"),
    *("myriad.training.export.export_agent", "myriad.training.population.Population"),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return two more than there are cores, if they fit: many tests wait for their processes."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist reads it
    memory, _ = host_memory()
    # A worker grows to 2 GB or a little more, and the processes that its test starts need some.
    fit = usable_cores() if memory is None else memory // (3 * 2**30)
    return max(1, min(usable_cores() + 2, fit))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Leave out the doctests of test files, whose collector hides that a file can't be imported."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a command that is refused in the folder `tmp_path`; return what it says."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        assert main(argv) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "Traceback" not in said.err
        assert sorted(tmp_path.rglob("*")) == before
        return said.err

    return run


@pytest.fixture(autouse=True, scope="module")
def _drop_programs():
    """Keep a worker from growing to gigabytes: JAX holds each program that it has ever run."""
    yield
    jax.clear_caches()
