"""Read suite.toml, the one declaration of what is measured, and answer its mistakes.

Called by the asv classes, the command lines and the plots. Standard library only, so that the suites import on every
commit.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

SUITE_FILE = Path(__file__).with_name("suite.toml")
SUITES = ("throughput",)
TIERS = ("quick", "full")
DEVICES = ("cpu", "gpu")
SIDES = ("myriad", "myriad-plain", "gymnax", "gymnax-configured")  # what benchmarks/sides.py can run

T = TypeVar("T")


class SuiteError(ValueError):
    """suite.toml, or a request for what it declares, has a mistake."""


# A kind of value: what it is called in an error, and the test that says whether a value from the file is one.
_Kind = tuple[str, Callable[[Any], bool]]
_TEXT: _Kind = ("a text", lambda value: isinstance(value, str))
_FLAG: _Kind = ("true or false", lambda value: isinstance(value, bool))
_COUNT: _Kind = ("a whole number of at least 1", lambda value: type(value) is int and value >= 1)
_NUMBER: _Kind = ("a number above 0", lambda value: type(value) in (int, float) and value > 0)


def _one_of(allowed: tuple[str, ...]) -> _Kind:
    return f"one of {', '.join(allowed)}", lambda value: value in allowed


def _some_of(allowed: tuple[str, ...]) -> _Kind:
    return (
        f"a list that may hold {', '.join(allowed)}",
        lambda v: isinstance(v, list) and all(item in allowed for item in v),
    )


def _key(kind: _Kind, **default: Any) -> Any:
    """Declare a field that is read from the file under its own name."""
    return field(metadata={"kind": kind}, **default)


@dataclass(frozen=True)
class Workload:
    """What one benchmark steps, and where it is measured."""

    suite: str
    name: str
    env: str = _key(_TEXT)
    agent: str = _key(_TEXT)
    num_envs: int = _key(_COUNT)
    scan_chunk_size: int = _key(_COUNT)
    tiers: tuple[str, ...] = _key(_some_of(TIERS))
    devices: tuple[str, ...] = _key(_some_of(DEVICES))
    num_steps: int | None = _key(_COUNT, default=None)


@dataclass(frozen=True)
class Law:
    """The mean episode length that a run of an environment must show, in steps."""

    env: str
    agent: str = _key(_TEXT)
    mean_episode_length: float = _key(_NUMBER)
    tolerance: float = _key(_NUMBER)
    num_episodes: int = _key(_COUNT)


@dataclass(frozen=True)
class Bar:
    """The least that Myriad's steps/s must be, in times those of another side or workload."""

    workload: str = _key(_TEXT)
    of: str = _key(_one_of(SIDES))
    at_least: float = _key(_NUMBER)
    than: str | None = _key(_TEXT, default=None)
    record: bool = _key(_FLAG, default=False)


@dataclass(frozen=True)
class Declaration:
    """All that suite.toml holds."""

    workloads: Mapping[str, Mapping[str, Workload]]
    laws: Mapping[str, Law]
    bars: tuple[Bar, ...]

    def select(self, suite: str, tier: str) -> dict[str, Workload]:
        """Return the workloads of `suite` that belong to `tier`, by name."""
        known(suite, self.workloads, "suite")
        known(tier, TIERS, "tier")
        return {name: workload for name, workload in self.workloads[suite].items() if tier in workload.tiers}

    def law_of(self, workload: Workload) -> Law | None:
        """Return the law that a run of `workload` must obey, if one is declared."""
        law = self.laws.get(workload.env)
        return law if law is not None and law.agent == workload.agent else None


def load(path: Path = SUITE_FILE) -> Declaration:
    """Read and check the declaration.

    Raises:
        SuiteError: in one sentence, with the key and what is allowed.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{path.name} is not valid TOML: {error}.") from error
    laws, bars = tables.pop("laws", {}), tables.pop("bars", [])
    if not isinstance(bars, list):
        raise SuiteError("bars must be an array of tables, [[bars]].")
    declaration = Declaration(
        workloads={known(suite, SUITES, "suite"): _workloads(suite, table) for suite, table in tables.items()},
        laws={env: _read(Law, table, f"laws.{env}", env=env) for env, table in _tables(laws, "laws")},
        bars=tuple(_read(Bar, table, f"bars[{index}]") for index, table in enumerate(bars)),
    )
    for bar in declaration.bars:
        for name in filter(None, (bar.workload, bar.than)):
            known(name, declaration.workloads.get("throughput", {}), "workload of a bar")
    return declaration


def tier_from_environment(environ: Mapping[str, str] = os.environ) -> str:
    """Return the tier that MYRIAD_TIER names, `quick` where it names none."""
    return known(environ.get("MYRIAD_TIER") or "quick", TIERS, "MYRIAD_TIER")


def known(name: str, allowed: Iterable[str], kind: str) -> str:
    """Return `name` if it is allowed, else raise a SuiteError with the closest name that is."""
    allowed = tuple(allowed)
    if name in allowed:
        return name
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise SuiteError(f"{kind} {name!r} is unknown; {hint}allowed: {', '.join(allowed) or 'none'}.")


def _tables(value: Any, where: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise SuiteError(f"{where} must be a table of tables, [{where}.<name>], but got {value!r}.")
    return value.items()


def _workloads(suite: str, tables: Any) -> dict[str, Workload]:
    return {
        name: _read(Workload, table, f"{suite}.{name}", suite=suite, name=name)
        for name, table in _tables(tables, suite)
    }


def _read(cls: type[T], table: Any, where: str, **given: str) -> T:
    """Build `cls` from a TOML table whose keys are the fields that were declared with `_key`."""
    if not isinstance(table, dict):
        raise SuiteError(f"{where} must be a table, but got {table!r}.")
    keys = {item.name: item for item in dataclasses.fields(cls) if "kind" in item.metadata}  # type: ignore[arg-type]
    for name, value in table.items():
        expected, fits = keys[known(name, keys, f"{where}: key")].metadata["kind"]
        if not fits(value):
            raise SuiteError(f"{where}.{name} must be {expected}, but got {value!r}.")
    for name, item in keys.items():
        if name not in table and item.default is MISSING:
            raise SuiteError(f"{where} lacks the key {name!r}, {item.metadata['kind'][0]}.")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return cls(**given, **values)
