"""A benchmark's compiled program: its identity, its metrics, and how two programs differ.

This reads the texts that workers write (StableHLO, optimised HLO), without jax. Names, locations
and metadata say how a program was written, not what it does. They are normalised away before
hashing, so that a rename changes nothing.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.process.protocol import ProgramFiles

_MLIR_LOCATION = re.compile(
    r"^#loc.*$|\s*loc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\")*\))*\)", re.MULTILINE
)
_MLIR_RESULT_NAME = re.compile(r'jax\.(?:result_info|arg_info) = "(?:[^"\\]|\\.)*",? ?')
_MLIR_SYMBOL = re.compile(
    r"(?:func\.func|sdy\.mesh|module)(?: public| private)? @([\w.$-]+|\"[^\"]*\")"
)
# `%name = type opcode(operands), attributes`. A tuple's type has spaces and parentheses, but never
# a parenthesis right after a word.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z][a-z0-9-]*)\((.*)$", re.MULTILINE)
_METADATA = re.compile(r",? ?metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}")
_HLO_TABLES = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*", re.MULTILINE
)
_HLO_NAME = re.compile(r"%[\w.-]+")
_HLO_PARAMETER = re.compile(r"(?<=[(\s])[\w.-]+: (?=[a-z(])")
_CALLBACK = re.compile(r'custom_call_target="[^"]*callback[^"]*"')
_WIDE = re.compile(r"\b(?:f64|s64|u64|c128)\[")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LEFT_OUT = "constant({...})"  # XLA leaves the values of a table out of an optimised program's text
_LAYOUT = re.compile(r"\{[\d,:A-Z()]*\}")


@dataclass(frozen=True)
class Instruction:
    """One instruction of an optimised program: what it does, and the line that asked for it."""

    opcode: str
    shape: str
    op_name: str
    line: str


@dataclass(frozen=True)
class Program:
    """One side's program of one benchmark.

    Attributes:
        identity: hash of everything that decides what the program does. Sides with equal identities
            run the same program.
        metrics: its metrics, which the rules of gate.toml compare.
        timed_is_program: whether the suite says that the timed work is this program and nothing
            else, and its text is complete. Equal identities then mean equal work.
        instructions: the instructions of the optimised program.
    """

    identity: str
    metrics: dict[str, float]
    timed_is_program: bool = False
    instructions: tuple[Instruction, ...] = field(default=(), repr=False)


def read_program(files: ProgramFiles, root: Path) -> Program | None:
    """Read what a worker wrote about a program; None if it wrote no text."""
    lowered = Path(files.lowered).read_text() if files.lowered else None
    optimised = Path(files.optimised).read_text() if files.optimised else None
    if lowered is None and optimised is None:
        return None
    context = json.dumps(files.context, sort_keys=True)
    witnesses = [normalise_stablehlo(lowered or ""), normalise_hlo(optimised or ""), context]
    identity = hashlib.sha256("\0".join(witnesses).encode()).hexdigest()
    metrics = dict(files.executable)
    instructions: tuple[Instruction, ...] = ()
    if optimised is not None:
        instructions = tuple(read_instructions(optimised, root))
        metrics |= count_operations(optimised)
    if {"argument_bytes", "alias_bytes"} <= metrics.keys():
        metrics["undonated_bytes"] = metrics["argument_bytes"] - metrics["alias_bytes"]
    if {"argument_bytes", "output_bytes", "temp_bytes", "alias_bytes"} <= metrics.keys():
        total = metrics["argument_bytes"] + metrics["output_bytes"] + metrics["temp_bytes"]
        metrics["peak_bytes"] = total - metrics["alias_bytes"]
    is_whole = lowered is not None or _LEFT_OUT not in (optimised or "")
    return Program(identity, metrics, files.timed_is_program and is_whole, instructions)


def normalise_stablehlo(text: str) -> str:
    """Return a lowered program without locations, its own symbols replaced by numbers."""
    text = _MLIR_RESULT_NAME.sub("", _MLIR_LOCATION.sub("", text))
    # Only symbols that the program defines: the target of a custom call decides what it does.
    own = {
        name: f"@s{number}" for number, name in enumerate(dict.fromkeys(_MLIR_SYMBOL.findall(text)))
    }
    text = re.sub(r'@([\w.$-]+|"[^"]*")', lambda match: own.get(match[1], match[0]), text)
    # Without its names, a list of attributes can be empty. Jax leaves such a list out.
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()).replace(" {}", "")


def normalise_hlo(text: str) -> str:
    """Return an optimised program without metadata, its instructions' names replaced by numbers."""
    text = _METADATA.sub("", _HLO_TABLES.sub("", text))
    text = re.sub(r"^HloModule [^,\n]+", "HloModule", text)
    text = _HLO_PARAMETER.sub("", text)
    numbers: dict[str, int] = {}
    return _HLO_NAME.sub(lambda match: f"%{numbers.setdefault(match[0], len(numbers))}", text)


def count_operations(hlo: str) -> dict[str, float]:
    """Count the instructions of an optimised program by kind, inside fusions too."""
    found = [(match[2], match[0]) for match in _INSTRUCTION.finditer(hlo)]
    kinds = Counter(opcode for opcode, _ in found)
    counts = {
        "instructions": len(found),
        "fusions": kinds["fusion"],
        "while_loops": kinds["while"],
        "loop_trips": sum(int(trips) for trips in _TRIPS.findall(hlo)),
        "copies": kinds["copy"] + kinds["copy-start"],
        "custom_calls": kinds["custom-call"],
        # A call of Python is a custom call on CPUs and GPUs, and a send to the host on TPUs.
        "host_callbacks": sum(
            bool(opcode == "custom-call" and _CALLBACK.search(line))
            or (opcode == "send" and "is_host_transfer=true" in line)
            for opcode, line in found
        ),
        "wide_instructions": sum(
            bool(_WIDE.search(line.partition("metadata=")[0])) for _, line in found
        ),
    }
    return {name: float(count) for name, count in counts.items()}


def read_instructions(hlo: str, root: Path) -> Iterator[Instruction]:
    """Yield the instructions of an optimised program with the source lines they came from."""
    frames = _stack_frames(hlo)
    for match in _INSTRUCTION.finditer(hlo):
        shape, opcode, rest = match.groups()
        name = re.search(r'op_name="((?:[^"\\]|\\.)*)"', rest)
        op_name = re.sub(r"jit\([^)]*\)/?", "", name[1]) if name else ""
        # Its line is in its metadata, or in the program's table of frames.
        frame = re.search(r"stack_frame_id=(\d+)", rest)
        file = re.search(r'source_file="([^"]*)"', rest)
        line = re.search(r"source_line=(\d+)", rest)
        source = frames.get(frame[1], "") if frame else ""
        if file and line:
            source = f"{file[1]}:{line[1]}"
        yield Instruction(opcode, _LAYOUT.sub("", shape), op_name, source.removeprefix(f"{root}/"))


def _stack_frames(hlo: str) -> dict[str, str]:
    """Return `file:line` of each frame in the tables that newer versions of XLA print."""
    table = re.search(r"^FileNames\n((?:.+\n)*)", hlo, re.MULTILINE)
    files = dict(re.findall(r'^(\d+) "(.*)"$', table[1] if table else "", re.MULTILINE))
    locations = r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)"
    places = {
        number: f"{files.get(file, '?')}:{line}"
        for number, file, line in re.findall(locations, hlo, re.MULTILINE)
    }
    frames = re.findall(r"^(\d+) \{file_location_id=(\d+)", hlo, re.MULTILINE)
    return {number: places.get(place, "") for number, place in frames}


def added_lines(base: Program, head: Program) -> Counter[str]:
    """Count the instructions that head's program adds, by the source line that asks for them.

    Line numbers shift with every edit, so instructions are matched by what they do and by the
    operation they come from.
    """
    known = Counter((each.opcode, each.shape, each.op_name) for each in base.instructions)
    lines: Counter[str] = Counter()
    for each in head.instructions:
        key = (each.opcode, each.shape, each.op_name)
        known[key] -= 1
        if known[key] < 0 and each.line:
            lines[each.line] += 1
    return lines
