"""Log a file of results to Weights & Biases.

    python benchmarks/log_results.py results/csv/throughput_cpu_X.csv
    python benchmarks/log_results.py FILE.csv --wandb-project speed --wandb-tags mine slow

Each row is a step of the run, with the numbers of its columns. The table `results` holds all rows.
`WANDB_MODE=offline` keeps the run on this machine.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.command_line import Parser, guarded
from benchmarks.harness.results import COLUMNS, TextRow, read_csv

_SCRIPT = "benchmarks/log_results.py"


def main(argv: Sequence[str] | None = None) -> int:
    """Log a file, and return the exit code."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV file that a benchmark wrote")
    parser.add_argument("--wandb-project", metavar="NAME", help="project (default: WANDB_PROJECT)")
    parser.add_argument("--wandb-name", metavar="NAME", help="name of the run (default: FILE's)")
    parser.add_argument("--wandb-tags", nargs="+", metavar="TAG", help="tags of the run")
    options = parser.parse_args(argv)
    rows = read_csv(options.file)

    from myriad.settings import Settings
    from myriad.training.logging.trackers import WeightsAndBiases

    settings = Settings.read(only=("wandb_project", "wandb_name", "wandb_tags"))
    run = WeightsAndBiases.start(
        project=options.wandb_project or settings.wandb_project or "myriad",
        name=options.wandb_name or settings.wandb_name or options.file.stem,
        tags=options.wandb_tags or settings.wandb_tags,
        job_type="benchmark",
        config={"file": str(options.file)},
    )
    table = WeightsAndBiases.library().Table(
        columns=list(COLUMNS), data=[[row[name] for name in COLUMNS] for row in rows]
    )
    for step, row in enumerate(rows):
        run.log(numbers_of(row), step=step)
    run.log({"results": table})
    name = run.name
    project = run.project
    run.finish()
    print(f"{options.file}: {len(rows)} rows are logged as {name} of {project}")
    return True


def numbers_of(row: TextRow) -> dict[str, float]:
    """Return the columns of a row that hold numbers."""
    numbers = {}
    for name in COLUMNS:
        try:
            numbers[name] = float(row[name])
        except ValueError:
            continue  # the cell is a name or empty
    return numbers


if __name__ == "__main__":
    sys.exit(main())
