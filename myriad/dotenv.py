"""Read a `.env` file with python-dotenv, and refuse the lines that it would skip."""

import io
import re
from typing import Any

from myriad.errors import InvalidArgumentError


def variables_in(text: str, file: object) -> dict[str, str]:
    """Return the variables that a `.env` file sets, the last value of each.

    A statement is `NAME=value`, optionally with `export` before it, quotes around the value or a
    comment after it. A name alone sets nothing. `${OTHER}` is text like any other.

    Args:
        text: the content of the file.
        file: the file's name, for errors.

    Raises:
        InvalidArgumentError: a line is not a statement. The message names the line but doesn't
            repeat it, since it may hold a secret.
    """
    from dotenv.parser import parse_stream

    variables: dict[str, str] = {}
    for statement in parse_stream(io.StringIO(text, newline="")):
        if statement.error:
            raise InvalidArgumentError(
                f"{file}, line {_line_of(statement.original)}, must be NAME=value or a comment; "
                "correct or remove it."
            )
        if statement.key is None:
            continue
        variables.pop(statement.key, None)
        if statement.value is not None:
            variables[statement.key] = statement.value
    return variables


def _line_of(original: Any) -> int:
    """Return the line of an invalid statement, whose original includes blank lines before it."""
    text = original.string
    blank = text[: len(text) - len(text.lstrip())]
    return original.line + len(re.findall(r"\r\n|\n|\r", blank))
