"""A `.env` is read as python-dotenv reads it, and what that would skip is refused."""

import io
import logging

import pytest
from dotenv.main import DotEnv
from dotenv.parser import parse_stream
from hypothesis import given
from hypothesis import strategies as st

from myriad.errors import InvalidArgumentError
from myriad.settings import variables_in

SIGNS = [" ", "\t", "=", "'", '"', "\\", "#", "\n", "\r", "\r\n", "\x0b", "\u2028", "$", "{", "}"]
WORDS = ["A", "B", "é", "n", "export", "export A=1\n", "B='x y'\n", 'A="q\\n"\n', "A = 1 # one\n"]
REFERENCES = ["${A}", "${B:-otherwise}", "A=${A}${A}\n"]


@given(st.lists(st.sampled_from(SIGNS + WORDS + REFERENCES), max_size=14).map("".join))
def test_any_text_gives_the_variables_of_python_dotenv_or_is_refused_where_that_skips(text):
    logging.getLogger("dotenv.main").disabled = True
    skips = any(each.error for each in parse_stream(io.StringIO(text, newline="")))
    if skips:
        with pytest.raises(InvalidArgumentError, match=r"^\.env, line \d+, must be NAME=value or"):
            variables_in(text, ".env")
        return
    expected = DotEnv(None, io.StringIO(text, newline=""), interpolate=False).dict()
    # A name alone has no value there.
    expected = {name: value for name, value in expected.items() if value is not None}
    assert variables_in(text, ".env") == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\n\n# two\nB C\n", 4), ("A='x\n", 1), ("\r\n\r\n=1", 3), ("A='1\n2'\nB='1' 2", 3)],
)
def test_a_bad_line_is_named_by_its_number_and_not_repeated(text, line):
    with pytest.raises(InvalidArgumentError) as refused:
        variables_in(text, "folder/.env")
    assert str(refused.value) == (
        f"folder/.env, line {line}, must be NAME=value or a comment; correct or remove it."
    )
