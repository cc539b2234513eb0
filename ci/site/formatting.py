"""How the site writes numbers, dates, machines and names. The templates use these as filters."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

NOT_MEASURED = "not measured yet"
OLD_DAYS = 30
OLD_COMMITS = 50  # of the code that a figure measures
_WIDE = 1 / 3  # an interval of more than this share of its value makes the value noisy
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SUFFIXES = {"": 1, "k": 1_000, "m": 1_000_000}  # of sizes in names of workloads
_COUNT_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def times(ratio: float) -> str:
    """Write how many times: 125, 58, 6.9, 0.87."""
    if ratio >= 10:
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def percent(ratio: float) -> str:
    """Write a ratio as a change, +5.2% or -3.0%. From half and double on it is a factor."""
    if ratio >= 2 or ratio <= 0.5:
        return f"{ratio:.2f}\N{MULTIPLICATION SIGN}"
    return f"{(ratio - 1) * 100:+.1f}%".replace("-", "\N{MINUS SIGN}")


def quantity(value: float, unit: str) -> str:
    """Write one of asv's values in its unit, to three digits."""
    units = {"seconds": _TIME_UNITS, "bytes": _SIZE_UNITS}.get(unit)
    if units is None:
        return f"{value:.4g} {unit}".strip()
    return _scaled(value, units)


def rate(value: float) -> str:
    """Write a rate: 29.8 M, 964 M, 1.06 G."""
    return _scaled(value, _COUNT_UNITS).strip()


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    # 0.9995 of a unit is written as 1 of it, and not as 1,000 of the next.
    fitting = [unit for unit in units if abs(value) >= unit[0] * 0.9995]
    size, name = fitting[0] if fitting else units[-1]
    scaled = value / size
    if abs(scaled) >= 100 or scaled == int(scaled):
        return f"{scaled:,.0f} {name}"
    digits = 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{digits}f} {name}"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: 1 core, 2 cores."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def hardware(machine: Mapping[str, Any]) -> str:
    """Name a machine by model, cores and memory."""
    cores = int(machine.get("cores") or 0)
    memory = float(machine.get("memory_total_bytes") or 0)
    parts = [
        machine.get("device_name", ""),
        counted(cores, "core") if cores else "",
        f"{memory / 2**30:.0f} GiB" if memory else "",
    ]
    return ", ".join(part for part in parts if part) or "unknown hardware"


def day(moment: datetime | float | None) -> str:
    """Write a date; a number is in seconds since 1970."""
    if moment is None:
        return "undated"
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.date().isoformat()


def is_old(moment: datetime | None, now: datetime, num_commits: int | None = None) -> bool:
    """Tell whether a measurement is too old to describe the present, as an undated one is."""
    return moment is None or (now - moment).days > OLD_DAYS or (num_commits or 0) > OLD_COMMITS


def is_noisy(middle: float, low: float | None, high: float | None) -> bool:
    """Tell whether an interval is so wide that another run may well give another value."""
    return low is not None and high is not None and high - low > _WIDE * middle


def kind_of_rate(agent: str) -> str:
    """Say what a rate is the rate of. Rates of two kinds are never compared."""
    if agent == "random":
        return "random actions"
    network = re.fullmatch(r"mlp-(\d+)-(\d+)", agent)
    if network is None:
        return f"whole training by {agent}"
    first, second = (f"{int(width):,}" for width in network.groups())
    return f"policy network {first} \N{MULTIPLICATION SIGN} {second}"


def breakable(name: str) -> Markup:
    """Let a long name break after its separators."""
    return Markup(re.sub(r"(?<=[._/,:-])(?=\w)|(?=\()", "<wbr>", str(escape(name))))  # noqa: S704


def pattern(function: str, parameters: Sequence[str]) -> str:
    """Write the pattern by which `asv run --bench` finds a benchmark, quoted for a shell."""
    # asv writes a string in quotes. Of what has a meaning in a pattern, any character will do.
    given = ", ".join(".?" + re.sub(r"[^\w :/-]", ".", each) + ".?" for each in parameters)
    return f"'{function}" + (rf"\({given}\)'" if given else "$'")


def short_commit(commit: str) -> str:
    """Write a commit as git does, and say if the files differed from it."""
    if not commit:
        return "unknown commit"
    return commit[:8] + " + changes" if commit.endswith("-dirty") else commit[:8]


def is_number(text: str) -> bool:
    """Tell whether a cell is a number or a percentage, which a table aligns to the right."""
    return re.fullmatch(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?%?", text) is not None


def cell(text: str) -> str:
    """Write a cell: a number to five digits, a commit to eight, other text as it is."""
    if re.fullmatch("[0-9a-f]{12,64}", text) and not is_number(text):
        return text[:8]
    is_long = len(text) > 6 and "." in text and not text.endswith("%")
    return f"{float(text):.5g}" if is_long and is_number(text) else text


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names by their numbers: sort-2 before sort-10, and 1k before 10k."""
    return [_part(part) for part in re.split(r"(\d+(?:[km]\b)?)", name)]


def _part(part: str) -> tuple[int, str]:
    number = part.rstrip("km")
    if not number.isdecimal():
        return -1, part
    return int(number) * _SUFFIXES[part[len(number) :]], ""


def slug(name: str) -> str:
    """Return a file name for a benchmark: time_sort(list-1k) becomes time_sort-list-1k."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "unnamed"


def slugs(names: Iterable[str]) -> dict[str, str]:
    """Return a slug for each name; no two are the same, even on a disk that ignores case."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        candidate = slug(name)
        count = 1
        while candidate.lower() in taken:
            count += 1
            candidate = f"{slug(name)}-{count}"
        taken.add(candidate.lower())
        found[name] = candidate
    return found
