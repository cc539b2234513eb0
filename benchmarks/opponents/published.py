"""Returns that others published, beside ours: `learning.py --published`.

`benchmarks/published.toml` has an entry for each row. `--published NAME` trains the rows of these
names alone. All seeds of a row run in a program that is compiled once.
"""

import math
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.process import ROOT
from benchmarks.harness.registry import known
from benchmarks.harness.results import Row, commit, machine_columns, read_csv
from benchmarks.harness.tables import markdown
from benchmarks.runner import Run

DECLARED = ROOT / "benchmarks" / "published.toml"
_SEEDS = 3
_FIRST_SEED = 100  # the fields of rows were chosen on lower seeds
_EPISODES = 256


@dataclass(frozen=True)
class Published:
    """A published return, and the training of ours that stands beside it.

    Attributes:
        name: the name of its table in `published.toml`.
        total_steps: the steps of a training, over all environments.
        source: who published the return, in Markdown.
        mean: the published return.
        std: the standard deviation of its episodes, 0 if the source has none.
        episodes: the number of these episodes.
        title: how the table calls the environment, by default as `env`.
        fields: further fields of our training.
    """

    name: str
    env: str
    agent: str
    total_steps: int
    source: str
    mean: float
    std: float = 0.0
    episodes: int = 1
    title: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def half(self) -> float:
        """Half of the 95% interval of the published return."""
        return 1.96 * self.std / math.sqrt(self.episodes)

    def train(self, seeds: Sequence[int]) -> Iterator[Row]:
        """Train seed after seed. The seconds leave out compiling."""
        import jax

        from myriad import create_config, make_key, make_train

        config = create_config(self.env, self.agent, total_steps=self.total_steps, **self.fields)
        config = config.changed(eval_frequency=config.steps_per_env, eval_rollouts=_EPISODES)
        train = make_train(config)
        compiled = jax.jit(train).lower(make_key(0)).compile()
        for seed in seeds:
            start = time.process_time()
            final = compiled(make_key(seed))["eval_return"][-1].mean()
            yield {
                "name": self.name,
                "seed": seed,
                "steps": int(train.steps[-1]),
                "final_return": float(final),
                "processor_s": time.process_time() - start,
                "device_name": machine_columns()["device_name"],
                "commit": commit(),
            }


def declared() -> dict[str, Published]:
    """Read the rows of `published.toml` by their names."""
    tables = tomllib.loads(DECLARED.read_text(encoding="utf-8"))
    return {name: Published(name=name, **values) for name, values in tables.items()}


def compare(run: Run) -> None:
    """Train the rows of `--published`, or all, and print a table of all rows in the file.

    With `--force` the file keeps its rows of other names.
    """
    every = declared()
    names = [known(name, every, "row") for name in run.options.published or every]
    file = run.options.output
    rows = read_csv(file) if file is not None and file.exists() else []
    rows = [row for row in rows if row["name"] not in names]
    if rows:
        run.save(*rows)
    seeds = range(_FIRST_SEED, _FIRST_SEED + (run.options.seeds or _SEEDS))
    for name in names:
        print(f"training {name}", file=sys.stderr, flush=True)
        for row in every[name].train(seeds):
            run.save(row)
            rows.append(row)
    print(table(rows))


def table(rows: Sequence[Row]) -> str:
    """Return the table of published results. The rows that lose stand first."""
    from myriad.timing import mean_interval

    lines = []
    for name, each in declared().items():
        seeds = [row for row in rows if row["name"] == name]
        if not seeds:
            continue
        returns = [float(row["final_return"]) for row in seeds]
        low, high = mean_interval(returns)
        mean = statistics.fmean(returns)
        loses = mean < each.mean - each.half
        seconds = statistics.fmean(float(row["processor_s"]) for row in seeds)
        cells = [
            each.title or each.env,
            each.agent,
            f"{mean:.4g} ({low:.4g} to {high:.4g}), {len(seeds)}",
            f"{each.mean:.4g}" + (f" +- {each.half:.2g}" if each.half else ""),
            each.source,
            "no" if loses else "yes",
            f"{int(seeds[0]['steps']):,}",
            f"{seconds:.0f}",
            f"`{name}`",
        ]
        lines.append((not loses, cells))
    headers = ["environment", "agent", "return (95%), seeds", "published", "by", "reached"]
    headers += ["steps", "processor seconds", "name"]
    return markdown(headers, [cells for _, cells in sorted(lines, key=lambda line: line[0])])
