"""Draw the plots of the results folder, each as PNG and as SVG.

python benchmarks/plot_results.py [--input FILE] [--plot-type throughput] [--output FOLDER]
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.results import CSV_FOLDER, PLOTS_FOLDER
from benchmarks.plots.draw import PLOTS, draw


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. If there is nothing to draw, say so and return 2."""
    from myriad.errors import MyriadError

    parser = argparse.ArgumentParser(
        prog="python benchmarks/plot_results.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--input",
        type=Path,
        default=CSV_FOLDER,
        help="CSV file, or folder of CSV files (default: results/csv)",
    )
    parser.add_argument(
        "--plot-type",
        metavar="NAME",
        help=f"plot to draw: {', '.join(PLOTS)} (default: all that the rows allow)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=PLOTS_FOLDER,
        help="folder for the plots (default: results/plots)",
    )
    options = parser.parse_args(argv)
    try:
        types = [options.plot_type] if options.plot_type is not None else list(PLOTS)
        for path in draw(options.input, options.output, types):
            print(path)
    except MyriadError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
