"""How many times as fast as each peer we are. A ratio needs two libraries that took turns in a run.

`ci.site.model` calls it with what `ci.site.measurements` read.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from ci.site.formatting import slug
from ci.site.measurements import LibrarySamples, SuiteRun
from ci.site.project import Project

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as a peer we are, over the rounds of one alternation.

    Attributes:
        ours: our samples.
        peer: the peer's samples.
        run: the run that measured both.
        middle: the median of the rounds' ratios.
        low: the lower end of its 95% interval, None where there are too few rounds.
        high: the upper end.
        variants: the same ratio with a variant in the place of its library, by the variant's name.
    """

    ours: LibrarySamples
    peer: LibrarySamples
    run: SuiteRun
    middle: float
    low: float | None
    high: float | None
    variants: dict[str, float]

    @property
    def anchor(self) -> str:
        """Where the comparison's page shows what is behind it."""
        run = self.run.file.partition(".")[0].removesuffix("_samples")
        written = "-recorded" if self.ours.recorded else ""
        return slug(f"of-{run}-{self.peer.library}-{self.ours.workload}{written}")


def speedups(runs: Sequence[SuiteRun], project: Project) -> list[Speedup]:
    """Return the newest speedup over each peer, for each environment, agent, size and machine."""
    newest: dict[tuple[str, str, str, int, bool, str], Speedup] = {}
    # The oldest first: a later run then replaces what an earlier one said.
    for run in sorted(runs, key=lambda run: run.measured or datetime.min.replace(tzinfo=UTC)):
        for found in speedups_of(run, project):
            ours = found.ours
            peer = found.peer.library
            key = (ours.env, ours.agent, peer, ours.num_envs, ours.recorded, ours.hardware)
            newest[key] = found
    return [newest[key] for key in sorted(newest)]


def speedups_of(run: SuiteRun, project: Project) -> list[Speedup]:
    """Return every speedup over a peer that one run measured, in its order."""
    return [
        found for alternation in run.alternations for found in _speedups(run, alternation, project)
    ]


def _speedups(
    run: SuiteRun, alternation: Sequence[LibrarySamples], project: Project
) -> Iterator[Speedup]:
    # Reversed, so that of a library measured twice the first counts.
    by_library = {samples.library: samples for samples in reversed(alternation)}
    ours = by_library.get(project.ours)
    for name, peer in by_library.items():
        library = project.libraries[name]
        if ours is None or name == project.ours or library.variant_of or library.is_limit:
            continue
        ratios = _ratios(ours, peer)
        if not ratios:
            continue
        pairs = {variant: (ours.library, variant) for variant in project.variants_of(name)}
        pairs |= {variant: (variant, name) for variant in project.variants_of(project.ours)}
        variants = {
            variant: statistics.median(quotients)
            for variant, (of, to) in pairs.items()
            if variant in by_library and (quotients := _ratios(by_library[of], by_library[to]))
        }
        middle = statistics.median(ratios)
        yield Speedup(ours, peer, run, middle, *median_interval(ratios), variants)


def _ratios(of: LibrarySamples, to: LibrarySamples) -> list[float]:
    if of.status != "ok" or to.status != "ok":
        return []
    return [a / b for a, b in zip(of.rates, to.rates, strict=False) if a and b]


def median_interval(samples: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return the two samples that enclose the true median with a probability of at least 95%.

    Both are None if there are too few samples. The k-th smallest lies above the median only if
    fewer than k of n fair coins show heads (Conover, Practical Nonparametric Statistics, 3.2).
    """
    # Exact, since a float overflows at 2**1024.
    allowed = (1 - Fraction(_CONFIDENCE)) * 2 ** len(samples) / 2
    rank = 0
    below = 1
    while below <= allowed:
        rank += 1
        below += math.comb(len(samples), rank)
    ordered = sorted(samples)
    return (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
