"""`myriad train`, whose flags are the fields of `TrainingConfig`."""

import dataclasses
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from myriad.cli.flags import table
from myriad.cli.training_flags import TrainingFlags
from myriad.errors import InvalidArgumentError
from myriad.ranges import Integer, NumSeeds

# Flags that say how to run a training. They don't describe the training itself.
_OF_PROCESSES = ("distributed", "coordinator", "num_processes", "process_id")

if TYPE_CHECKING:
    from myriad.distributed import Launch
    from myriad.training.results import TrainingResults


@dataclasses.dataclass(frozen=True)
class Train(TrainingFlags):
    """Train an agent and evaluate it along the way.

    Give hyperparameters and environment parameters by dotted name, such as
    --agent.learning-rate 1e-3 or --env.gravity 3.7. To list them with their defaults, give --env
    and --agent together with --help. A float hyperparameter may change over the training, as with
    --agent.learning-rate "linear(1e-3, 0)".
    """

    resume: Path | None = None
    """Resume the run in this folder."""

    start_from: Path | None = None
    """Begin with what the agent of the run in this folder has learned.
    Without --config, its config.toml gives what you leave open."""

    best: bool = False
    """Begin with the best agent of --start-from, not with its newest."""

    num_seeds: NumSeeds = None
    """Number of seeds to train side by side in one program, counting up from seed."""

    run_folder: Path | None = None
    """Folder of the run. By default a new one under runs/."""

    quiet: bool = False
    """Show no progress."""

    profile: Annotated[int, Integer(0)] = 0
    """Number of chunks to trace for Perfetto. The trace is large, and its size is printed."""

    distributed: bool = False
    """Train in several processes, of which this is one. Start the same command in each.
    srun and mpirun give each process its number.
    Without a launcher, set the next three flags."""

    coordinator: str | None = None
    """Host and port of process 0, such as 10.0.0.1:20123."""

    num_processes: Annotated[int | None, Integer(1)] = None
    """Number of processes that train together."""

    process_id: Annotated[int | None, Integer(0)] = None
    """Number of this process, from 0."""

    def __post_init__(self) -> None:
        if self.start_from is not None and self.config is None:
            object.__setattr__(self, "config", self.start_from / "config.toml")

    @property
    def launch(self) -> "Launch | None":
        """How the processes of a training in several find each other; None for one process.

        Raises:
            InvalidArgumentError: you gave flags for several processes without `--distributed`, or
                the coordinator is not a host and a port.
        """
        from myriad.distributed import Launch

        given = {name: getattr(self, name) for name in _OF_PROCESSES[1:]}
        if self.distributed:
            return Launch.read(given, Path())
        for name in given.keys() & self.given:
            raise InvalidArgumentError(f"{self.given[name]} needs --distributed as well.")
        return None

    def run(self) -> None:
        """Train, and print the results.

        Raises:
            MyriadError: see `train_and_evaluate` and `resume`.
        """
        from myriad.distributed import is_first

        results = self._results()
        if not is_first():
            return
        print("\n".join(_lines_of(results)))
        timings = results.timings
        speed = "nothing was left to train"
        if timings.train_s:
            speed = f"trained at {timings.steps_per_s:,.0f} steps/s"
        print(f"{speed}, {timings.total_s:.1f} s in all; {results.run_folder}")

    def _results(self) -> "TrainingResults":
        from myriad.api import resume, train_and_evaluate

        how: dict[str, Any] = {"quiet": self.quiet, "profile_chunks": self.profile}
        if self.resume is None:
            config, sources = self.described()
            return train_and_evaluate(
                config,
                self.run_folder,
                **how,
                sources=sources,
                start_from=self.start_from,
                best=self.best,
            )
        how_to_run = {"resume", "trust", "quiet", "profile", "without_xla_option", *_OF_PROCESSES}
        if others := self.given.keys() - how_to_run:
            flags = ", ".join(sorted(self.given[name] for name in others))
            raise InvalidArgumentError(f"--resume keeps the settings of a run; leave out {flags}.")
        return resume(self.resume, **how, trust=self.trust)

    def fields(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the fields of `TrainingFlags`, with the seeds that `num_seeds` stands for."""
        fields, sources = super().fields()
        if self.num_seeds is None:
            return fields, sources
        if "seeds" in self.given:
            raise InvalidArgumentError("--num-seeds and --seeds say the same; give one of them.")
        seed = fields.get("seed", 0)
        fields["seeds"] = range(seed, seed + self.num_seeds)
        sources["seeds"] = "--num-seeds"
        return fields, sources


def _lines_of(results: "TrainingResults") -> list[str]:
    """Return the results of a training as lines. Many seeds have a table above the last line."""
    from myriad.timing import mean_interval
    from myriad.training.run_folder import significant, training_of

    if results.config.seeds is None:
        last = results.evaluations[-1]
        reached = "; stopped at the target" if results.stopped == "target" else ""
        return [f"return {significant(last['return'])} after {last['steps']:,} steps{reached}"]
    last_of = {training_of(row): row for row in results.evaluations}
    cells = [(*results.config.members[0], "return", "steps", "")]
    for member, reached in zip(results.config.members, results.reached_target, strict=True):
        row = last_of[training_of(member)]
        mark = "stopped at the target" if reached else ""
        named = map(str, member.values())
        cells.append((*named, significant(row["return"]), f"{row['steps']:,}", mark))
    means = []
    for point, returns in results.returns_by_point():
        mean = f"mean return {significant(statistics.fmean(returns))}"
        if len(returns) > 1:
            low, high = map(significant, mean_interval(returns))
            mean += f", 95% interval {low} to {high} over {len(returns)} seeds"
        means.append("".join(f"{name} = {value}, " for name, value in point.items()) + mean)
    return [table(cells, str.rjust), *means]
