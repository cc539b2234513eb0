"""Measure the autotuner: its seconds from nothing and from its cache. This is only an asv suite."""

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from benchmarks.harness.asv_suite import names_of, skip_unless_runnable
from benchmarks.harness.workloads import load

_STEPS_PER_ENV = 10_000


class Autotune:
    """Seconds to suggest a chunk size that is known."""

    params: ClassVar = names_of("autotune")
    param_names: ClassVar = ["workload"]
    version = "2"
    timeout = 300

    def setup_cache(self) -> None:
        """Tune every workload into one cache, in the folder that asv copies for each benchmark."""
        for workload in self.params:
            with contextlib.suppress(NotImplementedError):  # `setup` says it
                config, tune, profiles = _tuner(workload)
                tune(config, verbose=False, cache=profiles, seconds=0)

    def setup(self, workload: str) -> None:
        """Read the cache of profiles once."""
        self.config, self.autotune, self.cache = _tuner(workload)

    def time_cached(self, workload: str) -> None:
        """Ask again."""
        self.autotune(self.config, verbose=False, cache=self.cache)


class AutotuneCold:
    """Seconds to suggest a chunk size from nothing, compilation included."""

    params: ClassVar = names_of("autotune")
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300

    def setup(self, workload: str) -> None:
        """Have asv skip what this commit or machine can't run."""
        _tuner(workload)

    def track_cold_s(self, workload: str) -> float:
        """Return what a first tuning takes, with nothing compiled in this process."""
        cold = {"MYRIAD_COMPILATION_CACHE": "off"}
        with mock.patch.dict(os.environ, cold), tempfile.TemporaryDirectory() as folder:
            config, tune, profiles = _tuner(workload, Path(folder))
            start = time.perf_counter()
            tune(config, verbose=False, cache=profiles)
            return time.perf_counter() - start

    track_cold_s.unit = "seconds"  # type: ignore[attr-defined]


def _tuner(workload: str, folder: Path | None = None) -> tuple[Any, Any, Any]:
    """Return a workload's configuration, the function that tunes it, and the cache of profiles.

    The cache is in `folder`, or in the working folder.

    Raises:
        NotImplementedError: this commit or this machine can't run it; asv then skips.
    """
    declared = load().trainings["autotune"][workload]
    skip_unless_runnable(declared)
    from myriad import create_config
    from myriad.autotune import ProfileCache, autotune

    config = create_config(declared.env, declared.agent, declared.num_envs, _STEPS_PER_ENV)
    return config, autotune, ProfileCache((folder or Path.cwd()) / "profiles.json")
