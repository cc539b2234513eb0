"""The pages are true: their code runs, their commands exist, their links lead somewhere."""

import ast
import dataclasses
import doctest
import importlib.util
import json
import os
import pkgutil
import re
import runpy
import sys
import textwrap
import tomllib
import types
from pathlib import Path

import pytest
import yaml

from myriad.agents import AGENTS
from myriad.agents.networks import NETWORKS
from myriad.cli import main
from myriad.envs import ENVIRONMENTS
from perfgate.config import read_rules
from perfgate.source.asv_config import read_config
from tests.child_processes import run

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
LINKED = [ROOT / "CONTRIBUTING.md", *DOCS, ROOT / "benchmarks" / "README.md"]
PAGES = [ROOT / "README.md", *LINKED, *sorted(ROOT.glob("ci/*/README.md"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KIND = re.compile(r"^\*(Tutorial|How-to|Reference|Explanation)\.\* ", re.MULTILINE)
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>run|not run: [^\n]+) -->\n)?"
    r"(?P<fence>`{3,})(?P<language>[^\s`]+)\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
PYTHON, SHELL = ("python",), ("sh", "console")
SEPARATOR = "\x1e"
# Pages whose code trains for over ten seconds. What they show is tested elsewhere, too.
LONG = ("curricula", "distributed", "index", "populations", "settings", "tuning", "tutorial")
LONG = {f"docs/{each}.md" for each in (*LONG, "gate/tutorial")}
# Lines in place of a progress bar, and those that only a slow machine prints.
PROGRESS = re.compile(r"[\d,]+ of [\d,]+ steps, .*|[\w -]+: (profiled in )?[\d.]+ s( so far)?")
# A program of ours with its subcommand, a module or a script, and the words behind it.
CALL = re.compile(
    r"(?:^|[;&|(]|\$ )\s*(?:\w+=\S* )*(?:ci/part\.sh [\w-]+ \d+ )?(?:\.venv/bin/)?"
    r"((?:make|myriad|perfgate)(?: [a-z][\w.-]*)?|pip|"
    r"python -m (?:asv|perfgate|uv pip|uv)(?: [a-z]+)?|python -m [\w.]+|python [\w/]+\.py)"
    r"(?= |$)((?: +[^\s;&|]+)*)",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the output that the page shows beneath it."""

    language: str
    code: str
    mark: str
    output: str | None


def blocks(page):
    """Return a page's blocks; a `text` block beneath code is its output."""
    result = []
    if page.suffix == ".ipynb":
        for cell in json.loads(page.read_text())["cells"]:
            if cell["cell_type"] == "code":  # whose last expression is printed
                tree = ast.parse("".join(cell["source"]))
                if isinstance(tree.body[-1], ast.Expr):
                    tree.body[-1].value = ast.Call(ast.Name("print"), [tree.body[-1].value], [])
                code = ast.unparse(ast.fix_missing_locations(tree))
                data = [each["data"] for each in cell["outputs"]]
                texts = ("".join(each["text/plain"]) for each in data if "image/png" not in each)
                shown = "".join(texts)
                result.append(Block("python", f"{code}\n", "" if shown else "run", shown))
        return result
    for match in FENCE.finditer(page.read_text()):
        before = result[-1] if result else None
        is_output = match["language"] == "text" and not match["mark"]
        if is_output and before is not None and before.language in (*PYTHON, *SHELL):
            assert before.output is None, f"{page} shows two outputs of {before.code}"
            result[-1] = dataclasses.replace(before, output=match["code"])
        else:
            result.append(Block(match["language"], match["code"], match["mark"] or "", None))
    return result


def runnable(page, languages):
    """Return the blocks that run: in a tutorial or in Python all, else those with an output."""
    kind = KIND.search(page.read_text())
    everything = languages == PYTHON or (kind is not None and kind[1] == "Tutorial")
    return [
        each
        for each in blocks(page)
        if each.language in languages
        and (each.mark == "run" or (not each.mark and (everything or each.output is not None)))
    ]


def name(page):
    return str(page.relative_to(ROOT))


def of_any_machine(text):
    """Return an output without progress, spacing and numbers, and its own `...` no wildcard."""
    lines = [
        re.sub(r"(?<=\w) \.\.\.$", " and so on", " ".join(line.split()))
        for line in text.splitlines()
        if not PROGRESS.fullmatch(line)
    ]
    return re.sub(r"\d[\d,.]*", "0", "".join(f"{line}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "languages"),
    [
        pytest.param(
            page,
            languages,
            id=f"{name(page)}-{languages[0]}",
            marks=[pytest.mark.long] if name(page) in LONG else [],
        )
        for page in (*PAGES, *NOTEBOOKS)
        for languages in (PYTHON, SHELL)
        if runnable(page, languages)
    ],
)
def test_the_code_of_a_page_prints_what_it_shows(page, languages, tmp_path):
    found = runnable(page, languages)
    # A terminal shows both streams. Elsewhere, a warning that the page lacks is a fault.
    is_terminal = languages == SHELL and page == ROOT / "docs" / "tutorial.md"
    numbers_vary = is_terminal or page in NOTEBOOKS
    # The variables of a reader who has activated .venv, with a home of their own.
    variables = dict.fromkeys(("HOME", "MYRIAD_HOME"), str(tmp_path / "home"))
    for who in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        variables[f"GIT_{who}"] = "reader@example.com"
    # LLVM need not optimise what runs for a second: a page shows no speed.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables |= {"XLA_FLAGS": flags, "PATH": path, "PYTHONPATH": str(ROOT)}
    if languages == PYTHON:
        command = [sys.executable, tmp_path / "page.py"]
        text = "".join(f"print({SEPARATOR!r}, flush=True)\n{each.code}" for each in found)
        command[1].write_text(text)
    else:
        script = "".join(f"echo $'{SEPARATOR}'\n{each.code}" for each in found)
        command = ["bash", "-e", "-c", f"exec 2>&1\n{script}" if is_terminal else script]
        (tmp_path / "home").mkdir()
        # Where the gate's tutorial makes its repository. It makes the code slower by half: short
        # samples show that.
        rules = tmp_path / "first-gate" / "gate.toml"
        rules.parent.mkdir()
        rules.write_text("[timing]\npair_s = 0.1\nsample_s = 0.005\n")
    done = run(*command, cwd=tmp_path, **variables)
    assert "Warning: " not in done.stderr, done.stderr
    for block, got in zip(found, done.stdout.split(f"{SEPARATOR}\n")[1:], strict=True):
        texts = (block.output or "", got)
        shown, printed = map(of_any_machine, texts) if numbers_vary else texts
        same = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
        assert same or block.mark == "run", f"{block.code}\nprinted\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_tested_or_says_why_not_and_settings_are_valid(page, tmp_path):
    for block in blocks(page):
        # The last two are Sphinx's own, tested by the build.
        others = ("toml", "yaml", "json", "{eval-rst}", "{toctree}")
        known = block.language in (*PYTHON, *SHELL, *others)
        assert known or block.mark.startswith("not run: "), block
        file = tmp_path / f"block.{block.language}"
        file.write_text(block.code)
        if block.language == "toml" and "[[accepted]]" in block.code:
            read_rules(ROOT / "ci" / "gate.toml", file)
        elif block.language == "toml" and page.parent.name == "gate":
            read_rules(file, file.with_name("accepted.toml"))
        elif block.language == "toml":
            assert tomllib.loads(block.code)
        elif block.language == "json" and "benchmark_dir" in block.code:
            assert read_config(file, file.parent).benchmark_dir
        elif block.language == "json":
            assert json.loads(block.code)
        elif block.language == "yaml" and re.search(r"^on:", block.code, re.MULTILINE):
            checker = Path(sys.executable).with_name("check-jsonschema")
            run(checker, "--builtin-schema", "vendor.github-workflows", file)
        elif block.language == "yaml":
            assert yaml.safe_load(block.code)


def commands(page):
    """Yield what a page or a workflow calls, such as `myriad train`, and the words behind it."""
    text = page.read_text()
    if page in WORKFLOWS:
        steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
        text, shell = "", [each["run"] for each in steps if "run" in each]
    else:
        found = blocks(page)
        shell = [each.code for each in found if each.language in SHELL and each.mark != "run"]
    for code in [*shell, *re.findall(r"`([^`\n]+)`", FENCE.sub("", text))]:
        without_files = re.sub(r"<<'?(\w+)'?.*?^\1$", "", code, flags=re.MULTILINE | re.DOTALL)
        for program, words in CALL.findall(without_files.replace("\\\n", " ")):
            yield program, words.split()


def called_programs():
    """Return the programs that pages and workflows call, their flags and a page of each."""
    found = {}
    for page in (*PAGES, *WORKFLOWS):
        for program, words in commands(page):
            flags = [word.partition("=")[0] for word in words if word.startswith("--")]
            # A module need not say its help to exist, and some take seconds for it.
            if program.startswith(("myriad", "perfgate")) or (program[:6] == "python" and flags):
                found.setdefault(program, {}).update(dict.fromkeys(flags, name(page)))
    return sorted(found.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "given"), [pytest.param(*each, id=each[0]) for each in called_programs()]
)
def test_a_program_that_pages_call_has_the_flags_that_they_give(
    program, given, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "200")
    first, *rest = program.split()
    if first == "myriad":
        with pytest.raises(SystemExit):
            main([*rest, "--help"])
        text = capsys.readouterr().out
    else:
        path = sys.executable if first == "python" else Path(sys.executable).with_name(first)
        text = run(path, *rest, "--help", cwd=ROOT).stdout
    known = set(re.findall(r"--[a-z][\w-]*", text))
    for flag, page in given.items():
        # Any field of an agent or an environment is a flag with a dot; no help can list them all.
        assert flag in known or "." in flag, f"{page} gives {flag} to {program}"


@pytest.mark.parametrize("page", [*PAGES, *WORKFLOWS], ids=name)
def test_the_targets_modules_and_extras_that_a_page_names_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for program, words in commands(page):
        first, *rest = program.split()
        if first == "make" and rest:
            assert re.search(rf"^{re.escape(rest[0])}:", makefile, re.MULTILINE), program
        if rest[:1] == ["-m"]:
            assert importlib.util.find_spec(rest[1]), program
        elif first == "python":
            assert (ROOT / rest[0]).is_file(), program
        if first == "pip":
            named = re.findall(r"\[([\w,]+)\]", " ".join(words))
            extras = {each for one in named for each in one.split(",")}
            assert extras <= project["optional-dependencies"].keys(), words


@pytest.mark.parametrize(
    ("page", "heading", "registry"),
    [
        ("reference/environments.md", "name (aliases)", ENVIRONMENTS),
        ("reference/training.md", "name", AGENTS),
        ("networks.md", "`agent.network`", NETWORKS),
    ],
)
def test_a_table_names_what_a_registry_has(page, heading, registry):
    text = (ROOT / "docs" / page).read_text()
    _, _, table = text.partition(f"\n| {heading} |")
    rows = table.partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`([^`:]+)`", row.split("|")[1])}
    assert named == registry._built_in  # and what no other test has registered


def documented():
    """Return what the reference has an entry for, by its name there."""
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    entry = re.compile(r"^\.\. auto(?:class|function|exception|data):: ([\w.]+)", re.MULTILINE)
    return {each: pkgutil.resolve_name(each) for each in entry.findall(text)}


def test_the_reference_lists_the_public_names_of_each_of_its_modules():
    found = documented()
    modules = {each.rpartition(".")[0] for each in found}
    exported = {each: importlib.import_module(each).__all__ for each in modules}
    public = {f"{module}.{each}" for module, names in exported.items() for each in names}
    assert found.keys() <= public
    for each in public - found.keys():
        assert any(pkgutil.resolve_name(each) is known for known in found.values()), each


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=name)
def test_the_reference_has_each_name_that_a_page_teaches(page):
    found = documented()
    for block in blocks(page):
        if block.language not in PYTHON:
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(block.code))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("myriad"):
                names = [f"{node.module}.{each.name}" for each in node.names]
            elif re.fullmatch(r"myriad(\.\w+)+", ast.unparse(node)):  # myriad.timing.timed
                names = [ast.unparse(node)]
            for value in map(pkgutil.resolve_name, names):
                is_module = isinstance(value, types.ModuleType)
                assert is_module or any(value is known for known in found.values()), names


def test_the_pictures_that_pages_show_are_those_that_the_build_makes():
    made = runpy.run_path(str(ROOT / "scripts" / "pictures.py"))
    assert made["FILMS"].keys() == set(map(ENVIRONMENTS.resolve, ENVIRONMENTS._built_in))
    shown = [re.findall(r"<!-- picture (\S+): .+ -->", page.read_text()) for page in DOCS]
    assert {each for page in shown for each in page} == made["FILES"]


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_links_lead_to_files_and_from_the_start_to_every_page(start):
    seen = set()
    waiting = [ROOT / start]
    while waiting:
        page = waiting.pop()
        assert page.exists(), page
        if page in (*PAGES, *NOTEBOOKS) and page not in seen:
            seen.add(page)
            targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
            files = [each.partition("#")[0] for each in targets if not re.match(r"[a-z]+:|#", each)]
            waiting += [(page.parent / each).resolve() for each in files]
    assert {*LINKED, *NOTEBOOKS} <= seen


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_a_page_has_at_most_2000_words_and_says_first_of_which_kind_it_is(page):
    text = page.read_text()
    assert len(re.findall(r"\w[\w'./:-]*", text)) <= 2000
    first_lines = "\n".join(text.splitlines()[:5])
    assert KIND.search(first_lines) or page.name == "index.md", first_lines
