"""Read the results of `asv run`: one point per benchmark, commit, machine and versions.

This is version 2 of asv's format. `<machine>/<commit>-<environment>.json` holds a row for each
benchmark and names the columns. A benchmark with parameters has one value per combination in each
column. `benchmarks.json` describes the benchmarks.
"""

import ast
import contextlib
import functools
import itertools
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from perfgate.errors import UsageError
from perfgate.files import DAMAGE, array, finite, number, read_json, table, text
from perfgate.source.asv_config import read_config
from perfgate.source.changes import can_move
from perfgate.source.git import git

CONFIG = Path("asv.conf.json")
_NO_RESULTS = {"machine.json", "benchmarks.json"}
_VALUES = ("result", "stats_ci_99_a", "stats_ci_99_b", "samples")  # a value per combination each
_ANY_COMMIT = (
    "No repository here has the measured commits, so one that only touches documentation or tests "
    "may be named."
)
_LAST_MS = 253_402_300_799_000  # the last millisecond that `datetime` can hold


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything besides the commit that a time depends on.

    Points of two setups are never compared. `machine` names the hardware, and `machine_name` is the
    name that asv has for it.
    """

    machine: str
    versions: str
    benchmark_version: str
    machine_name: str = ""

    @property
    def series(self) -> tuple[str, str, str]:
        """What is the same for all processors of a hosted machine."""
        return self.machine_name or self.machine, self.versions, self.benchmark_version


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement; `low` and `high` are asv's 99% interval of the median, if it has one.

    `scale` is the factor by which the machine, and no commit, moved the value.
    """

    commit: str
    date_s: float
    setup: Setup
    value: float
    low: float | None
    high: float | None
    samples: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class RecordedCommit:
    """A commit that has results."""

    hash: str
    date_s: float
    subject: str


@dataclass(frozen=True)
class RecordedBenchmark:
    """One combination of parameters of one benchmark of the suite."""

    name: str
    function: str
    parameters: tuple[str, ...]
    unit: str
    code: str

    @property
    def meaning(self) -> str:
        """What it measures, taken from its docstrings."""
        try:
            tree = ast.parse(self.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # asv joins the sources of setup and method, so the text may start in the middle of a
            # class
            return ""
        kinds = (ast.FunctionDef, ast.ClassDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        return " ".join(text.splitlines()[0] for text in texts if text)


@dataclass
class Archive:
    """The contents of a results folder: `points` by benchmark, in the order of `commits`.

    `measured` holds the start of the newest measurement, in seconds since 1970, and its machine.
    `main` holds every commit of the branch `branch` in order, measured or not. It is empty if no
    repository has that branch. `moves` counts those of its commits up to each one that can move a
    benchmark. `left_out` says in sentences which results don't count.
    """

    commits: list[RecordedCommit] = field(default_factory=list)
    benchmarks: dict[str, RecordedBenchmark] = field(default_factory=dict)
    points: dict[str, list[Point]] = field(default_factory=dict)
    measured: tuple[float, str] = (0.0, "")
    unreadable: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    branch: str = "main"
    main: list[str] = field(default_factory=list)
    moves: dict[str, int] = field(default_factory=dict)

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The place of each measured commit."""
        return {commit.hash: place for place, commit in enumerate(self.commits)}

    def is_idle(self, previous: str, commit: str) -> bool:
        """Tell whether no commit after `previous`, up to `commit`, can move a benchmark."""
        return bool(self.moves) and self.moves[previous] == self.moves[commit]


def results_dir(config: Path) -> Path:
    """Return the folder that asv writes results to."""
    settings = read_config(config, config.parent).settings
    return config.parent / str(settings.get("results_dir", "results"))


def read_archive(folder: Path, *others: Path, config: Path | None = None) -> Archive:
    """Return the results in `folder` for one branch. The archive is empty if there are none.

    The folders in `others` add files that `folder` lacks. A damaged file is left out as a whole and
    listed in `unreadable`. `config` is the suite's asv.conf.json, which names the repository and
    its branches. Without it, the repository is the one that holds the results.
    """
    archive = Archive()
    folders = (folder, *others)
    descriptions: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for each in reversed(folders):
        descriptions |= _descriptions(each / "benchmarks.json", archive)
        # Like asv, it takes only the files of a folder that describes its machine.
        machines = [file.parent for file in each.glob("*/machine.json")]
        paths = (path for machine in machines for path in machine.glob("*.json"))
        files |= {path.relative_to(each).as_posix(): path for path in paths}
    on_main = _read_branch(archive, [each.parent for each in folders], config)
    archive.main = list(on_main)
    dates: dict[str, float] = {}
    elsewhere: set[str] = set()
    for _, path in sorted(files.items()):
        if path.name in _NO_RESULTS:
            continue
        try:
            run = read_json(path)
            commit = _commit(run)
            if on_main and commit not in on_main:
                elsewhere.add(commit)
                continue
            date_s = number(run.get("date", 0), 0, _LAST_MS) / 1000
            started_s, machine, points = _read_run(run, commit, date_s, descriptions)
        except DAMAGE:
            archive.unreadable.append(f"{path.parent.name}/{path.name}")
            continue
        dates[commit] = date_s
        archive.measured = max(archive.measured, (started_s, machine))
        for benchmark, point in points:
            archive.benchmarks[benchmark.name] = benchmark
            archive.points.setdefault(benchmark.name, []).append(point)
    if elsewhere:
        archive.left_out.append(
            f"Left out, because they are not on the branch {archive.branch}: "
            f"{len(elsewhere)} of {len(elsewhere) + len(dates)} measured commits."
        )
    if elsewhere and not dates and config:
        archive.left_out.append(
            "If they are of another repository, run `git clone --mirror REPO PROJECT` beside "
            "asv.conf.json, with its `repo` and `project`."
        )
    archive.left_out += [_ANY_COMMIT] if dates and not on_main else []
    order = {commit: place for place, commit in enumerate(on_main)}
    ordered = sorted(dates, key=lambda commit: (order.get(commit, 0), dates[commit], commit))
    archive.commits = [
        RecordedCommit(commit, dates[commit], on_main.get(commit, "")) for commit in ordered
    ]
    for points in archive.points.values():
        points.sort(key=lambda point: archive.places[point.commit])
    return archive


def _commit(run: dict[str, Any]) -> str:
    """Return the commit's hash, checked because the site names files after it."""
    commit = text(run["commit_hash"])
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise ValueError(f"{commit!r} is not a commit")
    return commit


def _descriptions(path: Path, archive: Archive) -> dict[str, Any]:
    """Return asv's description of each benchmark. Without one, the benchmark's name decides."""
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        for description in found.values():
            if isinstance(description, dict):
                text(description.get("unit", ""))
                text(description.get("code", ""))
    except DAMAGE:
        archive.unreadable.append(f"{path.parent.name}/{path.name}")
        return {}
    return found


def _read_branch(archive: Archive, places: list[Path], config: Path | None) -> dict[str, str]:
    """Return the subjects of the branch's commits, oldest first, or none if there is no branch.

    It is the first of the branches that exists, here or at `origin`, in the first of `places`.
    """
    named: list[str] = []
    if config:
        settings = read_config(config, config.parent).settings
        branches = settings.get("branches")
        listed = branches if isinstance(branches, list) else [branches]
        named = [str(each) for each in listed if each]
        repo = config.parent / str(settings.get("repo", "."))
        # If `repo` is an address, asv makes a mirror of it.
        mirror = config.parent / str(settings.get("project", "project"))
        is_mirror = (mirror / "objects").is_dir()
        places = [repo if repo.is_dir() else mirror if is_mirror else config.parent]
    # Of a merge, `-m` lists what it brings to the branch. Renames would need the contents.
    log = ("-c", "core.quotePath=true", "log", "--first-parent", "-m", "--name-only")
    log += ("--no-renames", "--reverse", "--format=%x00%H%x09%s", "--end-of-options")
    for place, name in itertools.product(places, named or ["main", "master"]):
        for ref in (name, f"origin/{name}"):
            with contextlib.suppress(UsageError, OSError):
                text = git(*log, ref, "--", cwd=place)
                archive.branch = name
                return _read_log(archive, text)
    if named:
        archive.left_out.append(
            f"No branch that asv.conf.json names ({', '.join(named)}) is in this clone, so all "
            "measured commits count, in the order of their dates."
        )
    return {}


def _read_log(archive: Archive, text: str) -> dict[str, str]:
    """Return the subject of each commit, and count the commits that can move a benchmark."""
    subjects: dict[str, str] = {}
    moving = 0
    for entry in text.split("\0")[1:]:
        head, *names = entry.split("\n")
        commit, _, subject = head.partition("\t")
        subjects[commit] = subject
        paths = [PurePosixPath(name.strip('"')) for name in names if name]
        moving += any(map(can_move, paths))
        archive.moves[commit] = moving
    return subjects


def _read_run(
    run: dict[str, Any], commit: str, date_s: float, descriptions: dict[str, Any]
) -> tuple[float, str, list[tuple[RecordedBenchmark, Point]]]:
    """Return when the last benchmark of a file started, the hardware, and what was measured."""
    params = table(run.get("params", {}))
    name, cpu, count = (text(params.get(each) or "") for each in ("machine", "cpu", "num_cpu"))
    cores = f"{count} core{'s' * (count != '1')}" if count else ""
    # A machine that keeps its name but changes its processor is another machine.
    machine = ", ".join(filter(None, (name, cpu, cores))) or "unknown machine"
    versions = _versions(run)
    started_s = 0.0
    points = []
    for function, row in table(run["results"]).items():
        # asv leaves out empty columns at the end of a row.
        columns = dict(zip(array(run["result_columns"]), array(row), strict=False))
        started_s = max(started_s, number(columns.get("started_at") or 0, 0, _LAST_MS) / 1000)
        setup = Setup(machine, versions, text(columns.get("version") or ""), name)
        described = table(descriptions.get(function, {}))
        # Without a description the name decides. asv's timing benchmarks are in seconds.
        is_timed = function.rpartition(".")[2].startswith("time")
        unit = described.get("unit") or ("seconds" if is_timed else "")
        axes = [[text(each) for each in array(axis)] for axis in columns.get("params") or []]
        measured = itertools.zip_longest(*(array(columns.get(each) or []) for each in _VALUES))
        for parameters, values in zip(itertools.product(*axes), measured, strict=False):
            value, low, high = map(finite, values[:3])
            if value is None:  # the benchmark failed or was skipped
                continue
            plain = tuple(each.strip("'\"") for each in parameters)
            title = text(function) + (f"({', '.join(plain)})" if plain else "")
            code = described.get("code", "")
            benchmark = RecordedBenchmark(title, function, plain, unit, code)
            samples = tuple(number(each) for each in values[3] or ())
            points.append((benchmark, Point(commit, date_s, setup, value, low, high, samples)))
    return started_s or date_s, machine, points  # asv's `date` is the commit's


def _versions(run: dict[str, Any]) -> str:
    """Name everything that asv varies: the Python, the requirements and environment variables."""
    required = sorted(table(run.get("requirements") or {}).items())
    versions = (f"{name} {version or ''}".strip() for name, version in required)
    variables = sorted(table(run.get("env_vars") or {}).items())
    python = _without_paths(text(run.get("python") or "unknown"))
    settings = (f"{name}={_without_paths(str(value))}" for name, value in variables)
    return text(", ".join([f"Python {python}", *versions, *settings]))


def _without_paths(value: str) -> str:
    """Return a value that tells two paths apart, since a page must show none of this machine."""
    return f"(path {zlib.crc32(value.encode()):08x})" if re.search(r"[/\\]", value) else value
