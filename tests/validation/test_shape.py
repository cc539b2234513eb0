"""The script that counts the tree's shape, on small trees whose figures are plain to see."""

import ast
import textwrap

import pytest

from ci.validation import prose, shape


def figures(**files):
    """Count the figures of some modules of a package `myriad`."""
    texts = {f"myriad/{name}.py": textwrap.dedent(text) for name, text in files.items()}
    return shape.code_figures(shape.parse(texts, texts))


@pytest.mark.parametrize(
    ("figure", "source", "expected"),
    [
        ("nested conditional expressions", "a = 1 if b else 2 if c else 3", "1"),
        ("nested conditional expressions", "a = 1 if b else 2", "0"),
        ("tuple assignments", "a, b = f(1), g(2)", "1"),
        ("tuple assignments", "a, b = f(1)", "0"),
        ("lines over 100 columns", "a = '" + "x" * 100 + "'\n", "1 (100.0%)"),
        ("comment lines", "a = 1  # why\nb = 2\n", "50.0%"),
        ("docstring lines", '"""Say."""\na = 1\n', "50.0%"),
        ("functions over 60 lines", "def f():\n" + "    g()\n" * 60, "1"),
        ("functions over 60 lines", "def f():\n" + "    g()\n" * 59, "0"),
        ("modules over 300 lines", "a = 1\n" * 301, "1: myriad/one.py"),
    ],
)
def test_a_figure_counts_what_its_name_says(figure, source, expected):
    assert figures(one=source)[figure] == expected


def test_a_private_function_counts_once_its_only_caller_is_seen():
    source = """
        def _once(): ...
        def _twice(): ...
        def public():
            _once()
            _twice()
            _twice()
    """
    assert figures(one=source)["private functions with one caller"] == "1 of 2"


def test_a_lazy_import_closes_a_cycle_and_one_for_type_checkers_does_not():
    lazy = "def f():\n    import myriad.one\n"
    assert (
        figures(one="import myriad.two", two=lazy)["import cycles, lazy ones too"]
        == "1: myriad.one = myriad.two"
    )
    checked = "if TYPE_CHECKING:\n    import myriad.one\n"
    assert figures(one="import myriad.two", two=checked)["import cycles, lazy ones too"] == "0"


def test_classes_of_one_name_are_listed_if_one_program_has_both():
    both = figures(one="class Run: ...", two="class Run: ...\nclass Other: ...")
    assert both["class names used twice in one program"] == "1: Run"
    apart = [
        shape.Module(path, [], ast.parse("class Run: ..."))
        for path in ("myriad/one.py", "ci/gate/perfgate/one.py")
    ]
    assert shape.code_figures(apart)["class names used twice in one program"] == "0"


def test_a_module_of_the_gate_goes_by_the_name_that_others_import():
    path = "ci/gate/perfgate/stats/evidence.py"
    assert shape.Module(path, [], ast.parse("")).name == "perfgate.stats.evidence"


def test_code_and_tables_are_no_prose():
    page = "You read, you win; done.\n\n```python\na; b, c\n```\n\n| x, | y; |\n\n`d, e;`\n"
    words, semicolons, commas, you, asking = prose.prose_figures(page)
    assert words == 6
    assert (semicolons, commas, you, asking) == pytest.approx((1000 / 6, 1000 / 6, 2000 / 6, 0))


def test_a_revision_that_git_does_not_know_is_refused_in_a_sentence(capsys):
    assert shape.main(["--ref", "no-such-revision"]) == 2
    assert "git can't read 'no-such-revision'" in capsys.readouterr().err
