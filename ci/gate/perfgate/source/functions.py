"""Find the functions that a change alters, and the files that it alters elsewhere."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# decorators that cache a result: a benchmark may use such a function without running it
_REMEMBERS = ("cache", "memo")


@dataclass(frozen=True)
class Altered:
    """What a change alters.

    Attributes:
        functions: `file:qualified name` of functions of which only the body differs.
        modules: Python files that differ outside of function bodies.
        others: files whose users can't be determined.
    """

    functions: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def reach(self, executed: Iterable[str], imported: Iterable[str]) -> list[str]:
        """Return the part that affects whoever ran these functions and imported these files."""
        names = {_outermost(name) for name in executed}
        return sorted({*(self.functions & names), *(self.modules & set(imported)), *self.others})


def altered(base: Path, head: Path, changed: Iterable[PurePosixPath]) -> Altered:
    """Compare the differing files of two checkouts, function by function."""
    functions: set[str] = set()
    modules: set[str] = set()
    others: set[str] = set()
    for path in changed:
        file = path.as_posix()
        if path.suffix != ".py":
            others.add(file)
            continue
        found = _altered_functions(base / path, head / path)
        if found is None:
            modules.add(file)
        else:
            functions |= {f"{file}:{name}" for name in found}
    return Altered(frozenset(functions), frozenset(modules), frozenset(others))


def _outermost(name: str) -> str:
    """Return the outermost function that encloses a nested one."""
    return name.partition(".<locals>")[0]


def _altered_functions(base: Path, head: Path) -> set[str] | None:
    """Return the functions whose bodies differ; None if anything else differs too."""
    try:
        trees = [ast.parse(file.read_bytes()) for file in (base, head)]
    except (OSError, SyntaxError, ValueError):
        return None  # the file is new, gone or broken
    before, after = (dict(_bodies(tree)) for tree in trees)
    # `_bodies` removes the bodies from the trees. The rest is what an import of the file runs.
    if ast.dump(trees[0]) != ast.dump(trees[1]) or before.keys() != after.keys():
        return None
    differ = {name for name in before if before[name][0] != after[name][0]}
    if any(before[name][1] for name in differ):
        return None
    return differ


def _bodies(tree: ast.Module) -> Iterator[tuple[str, tuple[list[str], bool]]]:
    """Yield the bodies of each outermost function and method, and whether its results are cached.

    This removes the bodies from the tree. A name that is defined twice gets both bodies.
    """
    bodies: dict[str, list[str]] = defaultdict(list)
    keeps: dict[str, bool] = defaultdict(bool)
    places: list[tuple[ast.AST, str]] = [(tree, "")]
    while places:
        place, prefix = places.pop()
        for node in ast.iter_child_nodes(place):
            if isinstance(node, _FUNCTIONS):
                name = prefix + node.name
                bodies[name].append(ast.dump(ast.Module(node.body, [])))
                decorators = " ".join(map(ast.unparse, node.decorator_list)).lower()
                keeps[name] |= any(word in decorators for word in _REMEMBERS)
                node.body = []
            elif isinstance(node, ast.ClassDef):
                places.append((node, f"{prefix}{node.name}."))
            else:
                places.append((node, prefix))
    for name, dumped in bodies.items():
        yield name, (dumped, keeps[name])
