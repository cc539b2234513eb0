"""Sphinx's configuration: the pages of this folder and a reference from the docstrings.

`make docs` builds it offline. Every warning is an error.
"""

import importlib.metadata
import inspect
import re
import types
import typing
from typing import Any

from sphinx.application import Sphinx

project = "Myriad"
author = "The Myriad authors"
release = importlib.metadata.version("myriad")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "Myriad"
html_show_sourcelink = False
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

myst_heading_anchors = 3  # a link may name a heading

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
    read = types.SimpleNamespace(  # a name in quotes needs a library: leave it as it is
        __annotations__={k: v for k, v in function.__annotations__.items() if not isinstance(v, str)}
    )
    function.__annotations__ |= typing.get_type_hints(read)


def link_copies(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let a link that leaves this folder lead to a copy: Sphinx knows only its own pages."""
    steps = docname.count("/") + 1
    leaving = rf"\]\(((?:\.\./){{{steps},}}[^)#]+\.md)(?:#[^)]*)?\)"
    source[0] = re.sub(leaving, r"](path:\1)", source[0])


def setup(app: Sphinx) -> None:
    """Let Sphinx call these for each docstring and each page."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-before-process-signature", drop_ranges)
    app.connect("source-read", link_copies)
