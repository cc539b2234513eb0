"""Sphinx's configuration: the pages of this folder and a reference from the docstrings.

`make docs` builds it offline. Every warning is an error.
"""

import importlib.metadata
import re
from typing import Any

from sphinx.application import Sphinx

project = "Myriad"
author = "The Myriad authors"
release = importlib.metadata.version("myriad")

extensions = ["myst_parser", "sphinx.ext.apidoc", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "Myriad"
html_show_sourcelink = False
html_static_path = ["_static"]
html_js_files = [("accessible.js", {"defer": "defer"})]
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

# Each build writes one page per module into docs/api, which git ignores.
apidoc_modules = [
    {
        "path": "../myriad",
        "destination": "api",
        "separate_modules": True,
        "module_first": True,
        "automodule_options": {"members", "show-inheritance"},
    },
]
# Adapters have subclasses of their classes.
autodoc_mock_imports = ["brax", "dm_env", "stable_baselines3"]
autodoc_member_order = "bysource"  # a module's public things come first
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # `Attributes:` describes fields that autodoc finds as well
# A public name is documented where it is defined and where users import it from.
suppress_warnings = ["ref.python"]


def escape_bars(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep |x| an absolute value: reStructuredText takes it for a substitution."""
    lines[:] = [re.sub(r"(?<![\\`])\|(?!`)", r"\\|", line) for line in lines]


def link_copies(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let a link that leaves this folder lead to a copy: Sphinx knows only its own pages."""
    steps = docname.count("/") + 1
    leaving = rf"\]\(((?:\.\./){{{steps},}}[^)#]+\.md)(?:#[^)]*)?\)"
    source[0] = re.sub(leaving, r"](path:\1)", source[0])


def setup(app: Sphinx) -> None:
    """Let Sphinx call these for each docstring and each page."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", link_copies)
