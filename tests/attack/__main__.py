"""Attack the command line, configuration files, public functions and what is saved.

python -m tests.attack                                  the long form
python -m tests.attack --calls 100 --command-lines 0 --files 0 --no-faults
python -m tests.attack --seed 7 --only "call 12"        one case again
"""

import argparse
import random
import sys
import time
from pathlib import Path

from tests.attack import cases, faults, fuzz


def main() -> int:
    """Run the attack; return 1 if a case didn't end as promised."""
    options = _options()
    numbers = {
        "command line": range(options.command_lines),
        "file": range(options.files),
        "settings": range(options.settings),
        "call": range(options.calls),
    }
    if options.only:
        kind, _, number = options.only.rpartition(" ")
        numbers = {kind: [int(number)]}
    every = [fuzz.KINDS[kind](options.seed, i) for kind, them in numbers.items() for i in them]
    outcomes = []
    end = time.monotonic() + options.seconds
    for outcome in fuzz.attack(every):
        outcomes.append(outcome)
        if outcome.ending not in cases.GOOD or options.only:
            case = outcome.case
            print(f"{outcome.ending}: --seed {options.seed} --only '{case.kind} {case.number}'")
            print(f"  {fuzz.repeated(case)[:1000]}\n{outcome.said}\n", flush=True)
        if time.monotonic() > end:
            print(f"stopped after {options.seconds:g} s")
            break
    print(cases.table(outcomes))
    if options.refusals:
        refused = [each for each in outcomes if each.ending == cases.REFUSED]
        drawn = random.Random(options.seed).sample(refused, min(50, len(refused)))
        lines = [f"$ {fuzz.repeated(each.case)[:500]}\n{each.said}" for each in drawn]
        options.refusals.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    is_broken = any(each.ending not in cases.GOOD for each in outcomes)
    if options.faults and not options.only:
        is_broken |= bool(faults.main(["--seed", str(options.seed)]))
    return int(is_broken)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--command-lines", type=int, default=2000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument(
        "--faults",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="see tests.attack.faults",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--only", help="one case again, such as 'call 12'")
    parser.add_argument("--refusals", type=Path, help="write 50 random refusals to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
