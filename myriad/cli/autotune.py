"""`myriad autotune`: choose a chunk size or a batch, and manage what was found."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from myriad.cli.flags import XlaFlags, config_flags, refuse_flags
from myriad.errors import InvalidArgumentError
from myriad.files import require_free
from myriad.ranges import Bytes


@dataclasses.dataclass(frozen=True)
class Autotune(XlaFlags, config_flags("env", "agent", "num_envs", "buffer_size")):
    """Choose the chunk size or the batch of a training on this machine.

    You can also show, export or clear the chunk sizes that it found before.
    """

    tune: Literal["chunk", "batch"] = "chunk"
    """What to choose: the steps of a compiled call, or the rows of a gradient step."""

    write_env: Path | None = None
    """Write the batch as OPTIMAL_BATCH_SIZE to this file, or to .env if you name no file."""

    memory_limit: Bytes | None = None
    """Bytes of memory that may be used. By default all that the machine has free."""

    force: bool = False
    """Measure again, even if the result is already known. Replace the file of --export."""

    show: bool = False
    """Print the chunk sizes found before, without measuring anything."""

    clear: bool = False
    """Delete the chunk sizes found before."""

    export: Path | None = None
    """Copy the chunk sizes found before to this file."""

    def run(self) -> None:
        """Tune, or manage the cache as the flags say."""
        from myriad.autotune import ProfileCache, autotune
        from myriad.autotune.tuner import STEPS_PER_ENV
        from myriad.training.config import make_config

        cache = ProfileCache()
        if self.show or self.clear or self.export is not None:
            self._manage(cache)
            return
        if self.env is None or self.agent is None:
            raise InvalidArgumentError("--env and --agent are missing: they say what to tune.")
        if self.tune == "batch":
            self._tune_batch()
            return
        if self.write_env is not None:
            raise InvalidArgumentError("--write-env writes a batch, so it needs --tune batch.")
        config = make_config(
            self.env, self.agent, self.num_envs, STEPS_PER_ENV, buffer_size=self.buffer_size
        )
        autotune(config, force_revalidate=self.force, memory_limit=self.memory_limit)

    def _tune_batch(self) -> None:
        from dotenv import set_key

        from myriad.autotune.batch import SIZES, measure_arms, smallest_near_best, with_batch
        from myriad.files import read_text, write_errors_explained
        from myriad.settings import Settings, variables_in
        from myriad.training.config import make_config

        config = make_config(self.env, self.agent, self.num_envs, buffer_size=self.buffer_size)
        with_batch(config, SIZES[0])  # refuses an agent without gradient steps
        if self.write_env is not None:
            with write_errors_explained(self.write_env):
                self.write_env.open("a").close()  # before minutes of measuring
            # Nothing is added to a file of another kind.
            variables_in(read_text(self.write_env), self.write_env)
        arms = measure_arms({"": config}, memory_limit=self.memory_limit, on_size=print)
        rates = arms[""]
        chosen = smallest_near_best(rates)
        for rate in rates:
            mark = "  <- chosen" if rate is chosen else ""
            shown = rate.refused
            if rate.rows_per_s is not None:
                shown = f"{rate.rows_per_s:,.0f} rows/s ({rate.low:,.0f} to {rate.high:,.0f})"
            print(f"{rate.batch_size:>7,} rows: {shown}{mark}")
        if self.write_env is not None:
            variable, rows = Settings.table()["batch_size"].variable, str(chosen.batch_size)
            with write_errors_explained(self.write_env):
                set_key(self.write_env, variable, rows, quote_mode="never", follow_symlinks=True)
            print(f"{variable}={rows} written to {self.write_env}")

    def _manage(self, cache: Any) -> None:
        measuring = ("env", "agent", "num_envs", "buffer_size", "tune", "write_env", "memory_limit")
        unused = measuring if self.export is not None else (*measuring, "force")
        refuse_flags(self, unused, "beside --show, --clear or --export, which measure nothing")
        if self.export is not None:
            require_free(self.export, force=self.force)
            cache.export(self.export)
            print(f"{cache.path} copied to {self.export}")
        if self.show:
            print(cache.table())
        if self.clear:
            cache.clear()
            print(f"{cache.path} cleared")
