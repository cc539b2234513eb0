"""Sphinx's configuration: the pages of this folder and a reference from the docstrings.

`make docs` builds it offline. Every warning is an error.
"""

import functools
import importlib.metadata
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import types
import typing
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

project = "Myriad"
author = "The Myriad authors"
project_copyright = author
release = importlib.metadata.version("myriad-rl")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "Myriad"
html_show_sourcelink = False
html_static_path = ["_static"]
html_js_files = [("accessible.js", {"defer": "defer"})]
html_css_files = ["phone.css"]
default_role = "code"  # docstrings write names between single backticks

# Within the site of results, whose pages lie one folder up, each page leads back there.
if tags.has("results"):  # noqa: F821 (Sphinx provides it)
    templates_path = ["_templates"]
    html_sidebars = {
        "**": [
            "sidebar/scroll-start.html",
            "sidebar/brand.html",
            "sidebar/search.html",
            "sidebar/results.html",
            "sidebar/navigation.html",
            "sidebar/scroll-end.html",
        ]
    }

source_suffix = {".md": "markdown", ".ipynb": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3  # a link may name a heading
# Pages that lie beside what they are about.
HERE = Path(__file__).parent
ELSEWHERE = {
    "benchmarks": HERE.parent / "benchmarks" / "README.md",
    "contributing": HERE.parent / "CONTRIBUTING.md",
    "changelog": HERE.parent / "CHANGELOG.md",
    "published": HERE.parent / "results" / "published" / "README.md",
}
PAGES = {file: HERE / f"{name}.md" for name, file in ELSEWHERE.items()}
PICTURES = HERE / "pictures"  # made by scripts/pictures.py, if it was run
REFERENCE = "reference/api"
CLASS_PAGES = HERE / "api"  # written anew by each build
CLASS = re.compile(r"^\.\. autoclass:: ([\w.]+).*\n(?:\n?   .*\n)*", re.MULTILINE)

autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80  # else a line for each parameter
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # `Attributes:` describes fields that autodoc finds as well


def escape_bars(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep |x| an absolute value: reStructuredText takes it for a substitution."""
    lines[:] = [re.sub(r"(?<![\\`])\|(?!`)", r"\\|", line) for line in lines]


def drop_ranges(app: Sphinx, obj: Any, bound_method: bool) -> None:  # noqa: FBT001
    """Show `int`, not `Annotated[int, Integer(1)]`. The error names the range."""
    function = inspect.unwrap(getattr(obj, "__func__", obj))
    hints = function.__annotations__
    # A name in quotes may need a library, so it stays as it is.
    readable = {name: hint for name, hint in hints.items() if not isinstance(hint, str)}
    hints |= typing.get_type_hints(types.SimpleNamespace(__annotations__=readable))


def write_class_pages(app: Sphinx) -> None:
    """Give each class of the reference a page of its own."""
    CLASS_PAGES.mkdir(exist_ok=True)  # Builds at the same time write the same.
    for entry in CLASS.finditer((HERE / f"{REFERENCE}.md").read_text()):
        title = entry[1].rpartition(".")[2]
        page = "\n".join([title, "=" * len(title), "", entry[0]])
        (CLASS_PAGES / f"{entry[1]}.rst").write_text(page)


def in_one_line(entry: re.Match[str]) -> str:
    """Lead to the page of a class, with the first line of its docstring."""
    about, *_ = (inspect.getdoc(pkgutil.resolve_name(entry[1])) or "").split("\n")
    return f"\n:py:class:`{entry[1]}`\n   {about}\n\n"


@functools.cache
def code_days() -> list[str]:
    """Return the day of each commit to the code, none unless this is a whole clone."""

    def git(*words: str) -> list[str]:
        command = ["git", "-C", str(HERE.parent), *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return ended.stdout.split()

    is_whole = shutil.which("git") and git("rev-parse", "--is-shallow-repository") == ["false"]
    return git("log", "--format=%cs", "--", "myriad", "benchmarks", "ci") if is_whole else []


def ages(text: str) -> str:
    """Say how many commits changed the code since each day on which a page measured."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"(?<![\w-])20\d\d-\d\d-\d\d(?![\w-])", prose)
    said = [
        f"{day}, {sum(each > day for each in code_days()):,} commits to the code ago"
        for day in sorted(set(found), reverse=True)
        if day <= max(code_days(), default="")
    ]
    return f"\n\n*Age of the figures: {'; '.join(said)}.*\n" if said else ""


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Read a page that lies elsewhere or is a notebook, show pictures, and lead links to pages."""
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".ipynb":
        run = PICTURES / f"{page.stem}.json"
        source[0] = as_markdown(json.loads(run.read_text() if run.exists() else source[0]))
    file = ELSEWHERE.get(docname, page)
    if file != page:
        source[0] = file.read_text()
        app.env.note_dependency(file)

    def led(link: re.Match[str]) -> str:
        target = (file.parent / link[1]).resolve()
        if not target.is_file():
            return link[0]
        target = PAGES.get(target, target)
        path = os.path.relpath(target, page.parent)
        is_page = target.suffix in source_suffix
        return f"]({path if is_page else f'path:{path}'}{link[2] or ''})"

    source[0] = re.sub(r"\]\(([^):#]+)(#[^)]*)?\)", led, source[0])
    if docname == REFERENCE:
        toctree = "\n```{toctree}\n:hidden:\n:glob:\n\n../api/*\n```\n"
        source[0] = CLASS.sub(in_one_line, source[0]) + toctree
    elif docname != "changelog":
        source[0] += ages(source[0])

    def picture(mark: re.Match[str]) -> str:
        path = os.path.relpath(PICTURES / mark[1], page.parent)
        return f"![{mark[2]}]({path})" if (PICTURES / mark[1]).exists() else ""

    source[0] = re.sub(r"<!-- picture (\S+): (.*?) -->", picture, source[0])


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook's cells and their outputs."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            if "image/png" in shown:
                parts.append(f"![The output](data:image/png;base64,{''.join(shown['image/png'])})")
            else:
                printed = "".join(output.get("text", shown.get("text/plain", "")))
                parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts)


def setup(app: Sphinx) -> None:
    """Let Sphinx call these for each docstring and each page."""
    app.connect("builder-inited", write_class_pages)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-before-process-signature", drop_ranges)
    app.connect("source-read", read_page)
