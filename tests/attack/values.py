"""Values for numbers, from their declared ranges, and values of all other types, as source text.

A value is the text of a Python expression, so that a case can be printed and run again.
"""

import math
from random import Random
from typing import Any

from myriad.ranges import Range

# What is no number, or none that a device holds.
WRONG_NUMBERS = ["math.nan", "math.inf", "-math.inf", "-1", "0", "1e-50", "1e300", "2**31", "2**63"]
WRONG_NUMBERS += ["-(2**63) - 1", "10**30", "10**5000", "True", "'abc'", "'1'", "None", "1.5", "1j"]
# Objects of types that an argument hardly ever has.
OBJECTS = ["None", "5", "-1.5", "math.nan", "''", "'abc'", "'\\x00'", "'no/such/folder'", "b'abc'"]
OBJECTS += ["[]", "[None]", "[1] * 10**5", "{}", "{'a': {}}", "set()", "object()", "type", "len"]
OBJECTS += [
    "lambda: 0",
    "10**400",
    "np.float32(0.5)",
    "np.arange(3)",
    "jnp.zeros(2)",
    "Exception()",
]
OBJECTS += [
    "Path('no/such/folder')",
    "True",
    "...",
    "'é' * 1000",
    "range(3)",
    "iter([])",
    "(1, (2,))",
]
OBJECTS += ["np.float32", "jax.ShapeDtypeStruct((2,), 'int32')", "[{}]"]
# What stands on a command line or in a file.
WORDS = [
    "abc",
    "",
    " ",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1.5",
    "9" * 5000,
    "None",
    "none",
]
WORDS += [
    "true",
    "[]",
    "[1, 2]",
    "[[1], 'a']",
    "{a = 1}",
    "'x'",
    '"',
    "\n",
    "1\nx = 2",
    "é",
    "0x10",
]
WORDS += ["--env", "-", "--", "1979-05-27", "[" * 3000, "x" * 10_000, "\x00"[:0] + "\x07", "\udcff"]


def number_inside(random: Random, declared: Range, default: Any) -> Any:
    """Return a number in a range: the default, an end, or another."""
    if declared.items is not None:
        return random.choice([[], [8], [8, 8], [int(declared.least)]])
    ends = [declared.least, declared.most]
    if declared.whole:
        ends = [int(end) for end in ends]
    elif declared.positive:
        ends[0] = 2.0**-126
    small = min(max(declared.least, 2), declared.most)
    choices = [default, default, small, *ends]
    if declared.infinity:
        choices.append(math.inf)
    return random.choice([*choices, *declared.words])


def number_outside(random: Random, declared: Range) -> Any:
    """Return a number that is in no range, or just outside this one."""
    outside = [math.nan, -math.inf, 10**30, "abc", True, [1, "a"], {}]
    if declared.whole:
        outside += [int(declared.least) - 1, int(declared.most) + 1, 1.5]
    else:
        outside += [1e39, declared.least - 1, declared.most * 2 + 1]
    return random.choice(outside)


def source(value: Any) -> str:
    """Return the expression of a number, or of a list of them."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def word(value: Any) -> str:
    """Return how the command line says a value."""
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
