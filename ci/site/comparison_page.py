"""What the comparison shows: the speedups over each peer, in groups that one run measured.

`ci.site.pages` calls it for the first page too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ci.site.formatting import counted
from ci.site.measurements import SuiteRun
from ci.site.model import Site
from ci.site.project import Library, Project
from ci.site.speedups import Speedup


@dataclass(frozen=True)
class SpeedupGroup:
    """The speedups over one peer in one environment that one run measured, a line per size."""

    env: str
    peer: Library
    recorded: bool
    lines: Sequence[Speedup]

    @property
    def run(self) -> SuiteRun:
        """The run that measured them."""
        return self.lines[0].run

    @property
    def variants(self) -> list[str]:
        """The variants of either library that were called in turn with both."""
        return list(dict.fromkeys(name for line in self.lines for name in line.variants))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the peer's figures."""
        reasons = [line.peer.reason for line in self.lines if line.peer.reason]
        # every size gives the same reason with figures of its own, so the first one is enough
        reason = reasons[0] if reasons else self.peer.note
        notes = [f"{self.peer.label}: {reason}."] if reason else []
        sizes = {line.peer.num_envs for line in self.lines}
        if sizes != {line.ours.num_envs for line in self.lines}:
            each = " and ".join(counted(size, "environment") for size in sorted(sizes))
            notes.append(f"{self.peer.label} always steps {each}: it is not faster with more.")
        return notes


def speedup_groups(speedups: Sequence[Speedup], project: Project) -> list[SpeedupGroup]:
    """Group the speedups by environment, peer and run; groups with more sizes come first."""
    gathered: dict[tuple[str, str, bool, str, str], list[Speedup]] = {}
    for line in speedups:
        ours = line.ours
        # random actions, a policy and a training are separate measurements
        env = ours.env if ours.agent == "random" else f"{ours.env}, {ours.agent}"
        key = (env, line.peer.library, ours.recorded, line.run.file, ours.hardware)
        gathered.setdefault(key, []).append(line)
    groups = [
        SpeedupGroup(env, project.libraries[peer], recorded, lines)
        for (env, peer, recorded, _, _), lines in gathered.items()
    ]
    return sorted(
        groups, key=lambda each: (each.recorded, -len(each.lines), each.env, each.peer.name)
    )


def comparison_page(site: Site) -> dict[str, Any]:
    """Return the context of the comparison's page."""
    lost = [row for row in site.measurements.rows if row["status"] != "ok"]
    columns = ("library", "env", "num_envs", "status", "reason")
    # several runs may say the same of a library
    absent = {tuple(row[name] for name in columns): row for row in lost}
    workloads = {
        workload: entry.slug
        for entry in site.entries
        if entry.measured
        for workload in entry.benchmark.parameters
    }
    return {
        "groups": speedup_groups(site.speedups, site.project),
        "absent": list(absent.values()),
        "workload_slugs": workloads,
    }
