"""Read the text of a `.env` file as python-dotenv does, and refuse the lines that it would skip."""

import re
from collections.abc import Mapping

from myriad.errors import InvalidArgumentError

_STATEMENT = re.compile(
    r"""
    (?:export[^\S\r\n]+)?+
    (?: '(?P<quoted_name>[^']+)' | (?P<name>(?!')[^=\#\s]++) | (?=\#) )
    [^\S\r\n]*
    (?:
        = (?P<space>[^\S\r\n]*+)
        (?:
            '(?P<single>(?:\\'|[^'])*)' | "(?P<double>(?:\\"|[^"])*)" | (?P<bare>(?!['"])[^\r\n]*)
        )
    )?+
    (?:[^\S\r\n]*\#[^\r\n]*)?
    [^\S\r\n]*(?:\r\n|\n|\r|\Z)
    """,
    re.VERBOSE,
)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_REFERENCE = re.compile(r"\$\{(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")


def variables_in(text: str, file: object, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a `.env` file sets, the last value of each.

    A statement is `NAME=value`, with `export` before it, quotes around the value or a comment after
    it. `${OTHER}` and `${OTHER:-otherwise}` stand for a variable of the environment, or else for
    one of the statements before. A name alone has the empty value.

    Args:
        text: what the file holds.
        file: what an error calls it.
        environ: the variables of the environment.

    Raises:
        InvalidArgumentError: something else stands there. The message names the line and doesn't
            repeat it, since it may hold a secret.
    """
    variables: dict[str, str] = {}
    end = len(text.rstrip())
    position = len(text) - len(text.lstrip())
    while position < end:
        statement = _STATEMENT.match(text, position)
        if statement is None:
            line = len(re.findall(r"\r\n|\n|\r", text[:position])) + 1
            raise InvalidArgumentError(
                f"{file}, line {line}, must be NAME=value or a comment; correct or remove it."
            )
        if name := statement["quoted_name"] or statement["name"]:
            variables[name] = _resolved(_value(statement), {**variables, **environ})
        position = statement.end()
        position += len(text[position:]) - len(text[position:].lstrip())
    return variables


def _value(statement: re.Match[str]) -> str:
    if statement["single"] is not None:
        return re.sub(r"\\([\\'])", r"\1", statement["single"])
    if statement["double"] is not None:
        return re.sub(
            r"""\\([\\'"abfnrtv])""",
            lambda escape: _ESCAPES.get(escape[1], escape[1]),
            statement["double"],
        )
    bare = (statement["space"] or "") + (statement["bare"] or "")
    return re.sub(r"\s+#.*", "", bare).strip()


def _resolved(value: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: known.get(found["name"], found["default"] or ""), value)
