"""Print the shape of the tree: files, lines, functions, imports and prose.

    python -m ci.validation.shape                  # the working tree
    python -m ci.validation.shape --ref v0.1.0     # a git revision

The figures are for reviewers. No check fails because of them.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ci.validation.prose import prose_figures

MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 300
MAX_FILES = 15

_PROGRAMS = ("myriad/", "benchmarks/", "ci/", "scripts/")
_TESTS = re.compile(r"(^|/)tests/")
# perfgate is a distribution of its own, so its modules' names start below this folder
_SOURCE_ROOT = "ci/gate/"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True)
class Module:
    """One Python file.

    Attributes:
        path: its path below the repository's root.
        lines: its lines.
        tree: its syntax tree.
    """

    path: str
    lines: list[str]
    tree: ast.Module

    @property
    def name(self) -> str:
        """The dotted name that other modules import it by."""
        parts = PurePosixPath(self.path.removeprefix(_SOURCE_ROOT)).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.validation.shape",
        description="Print the shape of the tree: files, lines, functions, imports and prose.",
    )
    parser.add_argument("--ref", metavar="REV", help="a git revision (default: the working tree)")
    options = parser.parse_args(argv)
    root = Path(__file__).parents[2]
    try:
        texts = read_revision(root, options.ref) if options.ref else read_working_tree(root)
    except subprocess.CalledProcessError as error:
        print(f"git can't read {options.ref!r}: {error.stderr.decode().strip()}", file=sys.stderr)
        return 2
    print("\n".join(report(texts)))
    return 0


def read_working_tree(root: Path) -> dict[str, str]:
    """Return the text of each Python and Markdown file that git doesn't ignore, by path."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    paths = [path for path in listed.decode().split("\0") if _is_text(path)]
    return {path: (root / path).read_text() for path in paths if (root / path).is_file()}


def read_revision(root: Path, ref: str) -> dict[str, str]:
    """Return the text of each Python and Markdown file in a git revision, by path."""
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", ref))) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if _is_text(member.name) else None
            if file is not None:
                texts[member.name] = file.read().decode()
    return texts


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


def _is_text(path: str) -> bool:
    return path.endswith((".py", ".md"))


def report(texts: Mapping[str, str]) -> list[str]:
    """Return two tables: the code beside its tests, and the pages."""
    paths = [path for path in texts if path.endswith(".py")]
    tests = [path for path in paths if _TESTS.search(path)]
    code = [path for path in paths if path.startswith(_PROGRAMS) and path not in tests]
    columns = [code_figures(parse(texts, chosen)) for chosen in (code, tests)]
    lines = ["| figure | code | tests |", "|---|---:|---:|"]
    lines += [f"| {name} | {columns[0][name]} | {columns[1][name]} |" for name in columns[0]]
    lines += ["", "| page | words | semicolons | commas | you | what, which, where |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    for path in sorted(path for path in texts if path.endswith(".md")):
        words, *rates = prose_figures(texts[path])
        shown = " | ".join(f"{rate:.1f}" for rate in rates)
        lines.append(f"| {path} | {words} | {shown} |")
    return [
        *lines,
        "",
        "Marks and words of a page are counted per 1,000 words, without code and tables.",
    ]


def parse(texts: Mapping[str, str], paths: Iterable[str]) -> list[Module]:
    """Parse these Python files."""
    return [
        Module(path, texts[path].splitlines(), ast.parse(texts[path], path))
        for path in sorted(paths)
    ]


def code_figures(modules: Sequence[Module]) -> dict[str, str]:
    """Return every figure of some modules by its name, as text."""
    lines = [line for module in modules for line in module.lines]
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    folders = Counter(str(PurePosixPath(module.path).parent) for module in modules)
    classes = Counter(
        (_program(module), node.name)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    )
    wide = sum(len(line) > MAX_COLUMNS for line in lines)
    once = [name for module in modules for name in called_once(module.tree)]
    private = sum(_is_private(function.name) for function in functions)
    comments = sum(count_comments(module) for module in modules)
    docstrings = sum(count_docstring_lines(module.tree) for module in modules)
    return {
        "files": str(len(modules)),
        "lines": f"{len(lines):,}",
        f"folders with over {MAX_FILES} files": _listed(
            f"{folder} {count}" for folder, count in folders.items() if count > MAX_FILES
        ),
        "files in the fullest folder": str(max(folders.values(), default=0)),
        f"lines over {MAX_COLUMNS} columns": f"{wide} ({_share(wide, len(lines))})",
        "nested conditional expressions": str(sum(map(_is_nested_conditional, nodes))),
        "tuple assignments": str(sum(map(_is_tuple_assignment, nodes))),
        "private functions with one caller": f"{len(once)} of {private}",
        "comment lines": _share(comments, len(lines)),
        "docstring lines": _share(docstrings, len(lines)),
        "import cycles, lazy ones too": _listed(" = ".join(ring) for ring in cycles(modules)),
        f"functions over {MAX_FUNCTION_LINES} lines": str(
            sum(_length(function) > MAX_FUNCTION_LINES for function in functions)
        ),
        f"modules over {MAX_MODULE_LINES} lines": _listed(
            module.path for module in modules if len(module.lines) > MAX_MODULE_LINES
        ),
        "class names used twice in one program": _listed(
            name for (_, name), count in classes.items() if count > 1
        ),
    }


def _program(module: Module) -> str:
    """Return the program that a module belongs to, such as `myriad`, or the gate's folder."""
    if module.path.startswith(_SOURCE_ROOT):
        return _SOURCE_ROOT
    return module.path.partition("/")[0]


def _listed(found: Iterable[str]) -> str:
    names = sorted(found)
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def _share(count: int, total: int) -> str:
    return f"{count / max(1, total):.1%}"


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_nested_conditional(node: ast.AST) -> bool:
    """Tell whether a conditional expression chooses between conditional expressions."""
    if not isinstance(node, ast.IfExp):
        return False
    return any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse))


def _is_tuple_assignment(node: ast.AST) -> bool:
    """Tell whether one statement assigns several values that are written out: `a, b = 1, 2`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def called_once(tree: ast.Module) -> Iterator[str]:
    """Yield the private functions and methods of a module that it mentions exactly once."""
    mentioned: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            mentioned[node.id] += 1
        elif isinstance(node, ast.Attribute):
            mentioned[node.attr] += 1
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and _is_private(node.name) and mentioned[node.name] == 1:
            yield node.name


def count_comments(module: Module) -> int:
    """Return how many lines of a module are comments or end in one."""
    source = io.StringIO("\n".join(module.lines) + "\n").readline
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(source))


def count_docstring_lines(tree: ast.Module) -> int:
    """Return how many lines the docstrings of a module take."""
    total = 0
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            total += (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return total


def cycles(modules: Sequence[Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, imports inside functions included."""
    known = {module.name for module in modules}
    edges = {module.name: imported(module, known) for module in modules}
    reached = {name: _reachable(name, edges) for name in known}
    rings = []
    for name in sorted(known):
        ring = [other for other in sorted(reached[name]) if name in reached[other]]
        if ring and ring[0] == name:
            rings.append(ring)
    return rings


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def imported(module: Module, known: set[str]) -> set[str]:
    """Return which of the known modules a module imports, outside `if TYPE_CHECKING:`."""
    names: set[str] = set()
    for node in _walk_run_time(module.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (below & known) or {node.module}
    return (names & known) - {module.name}


def _walk_run_time(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        is_for_checkers = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not is_for_checkers:
            yield from _walk_run_time(child)


if __name__ == "__main__":
    sys.exit(main())
