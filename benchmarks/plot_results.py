"""Draw the plots of the results folder, each as PNG and as SVG.

python benchmarks/plot_results.py [--input FILE] [--plot-type throughput] [--output FOLDER]
"""

import sys
from pathlib import Path

from benchmarks.harness.results import CSV_FOLDER, PLOTS_FOLDER
from benchmarks.plots.draw import PLOTS, draw
from benchmarks.runner import Run, Script, text


def _draw(run: Run) -> None:
    options = run.options
    types = [options.plot_type] if options.plot_type else list(PLOTS)
    for path in draw(options.input, options.output, types):
        print(path)


SCRIPT = Script(
    "plot_results",
    __doc__,
    _draw,
    {
        "--input": text(
            "CSV file, or folder of CSV files (default: results/csv)", CSV_FOLDER, type=Path
        ),
        "--plot-type": text("plot to draw (default: all that the rows allow)", choices=[*PLOTS]),
        "--output": text("folder for the plots (default: results/plots)", PLOTS_FOLDER, type=Path),
    },
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
