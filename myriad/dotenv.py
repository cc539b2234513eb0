"""Read a `.env` file with python-dotenv, and refuse the lines that it would skip."""

import io
import re
from collections.abc import Mapping
from typing import Any

from myriad.errors import InvalidArgumentError


def variables_in(text: str, file: object, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a `.env` file sets, the last value of each.

    A statement is `NAME=value`, optionally with `export` before it, quotes around the value or a
    comment after it. `${OTHER}` and `${OTHER:-otherwise}` stand for a variable of the environment,
    or else for one of an earlier statement. A name alone sets nothing.

    Args:
        text: the content of the file.
        file: the file's name, for errors.
        environ: the variables of the environment.

    Raises:
        InvalidArgumentError: a line is not a statement. The message names the line but doesn't
            repeat it, since it may hold a secret.
    """
    from dotenv.parser import parse_stream
    from dotenv.variables import parse_variables

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
            known = {**variables, **environ}
            atoms = parse_variables(statement.value)
            variables[statement.key] = "".join(atom.resolve(known) for atom in atoms)
    return variables


def _line_of(original: Any) -> int:
    """Return the line of an invalid statement, whose original includes blank lines before it."""
    text = original.string
    blank = text[: len(text) - len(text.lstrip())]
    return original.line + len(re.findall(r"\r\n|\n|\r", blank))
