"""Finds the string around a cursor and the call of which it is an argument. Reads text only; nothing is evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTES = re.compile(r'"""|\'\'\'|"|\'|#[^\n]*|\\.|\n', re.DOTALL)
_STRINGS = re.compile(r'''("""|\'{3}).*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*(?:')''', re.DOTALL)
_CALLED = re.compile(r"(?:([A-Za-z_]\w*)|([)\]]))?\s*\.\s*([A-Za-z_]\w*)\s*$")
_KEYWORD = re.compile(r"(\w+)\s*=\s*\[?\s*$")


@dataclass(frozen=True, slots=True)
class StringArgument:
    """An open string in a method call.

    Attributes:
        text: the string's content up to the cursor.
        quote: the string's opening quote.
        method: name of the called method.
        owner: the variable on which the method is called; None if it is another expression, for example a call.
        index: index of a positional argument, from 0; None for a keyword argument.
        keyword: the name of a keyword argument.
    """

    text: str
    quote: str
    method: str
    owner: str | None
    index: int
    keyword: str | None


def string_argument(before: str) -> StringArgument | None:
    """Return the open string at the end of a text, if it is an argument of a method call."""
    start, quote = _open_string(before)
    if not quote:
        return None
    head = before[:start].removesuffix(quote)
    head = re.sub(r"(?<![A-Za-z0-9_])[rRfFbBuU]{1,2}$", "", head)
    found = _open_call(head)
    if found is None:
        return None
    bracket, index = found
    called = _CALLED.search(head[:bracket])
    if called is None:
        return None
    keyword = _KEYWORD.search(head[bracket + 1 :])
    return StringArgument(before[start:], quote, called[3], called[1], index, keyword[1] if keyword else None)


def _open_string(text: str) -> tuple[int, str]:
    """Return the start of the content of a string that is open at the end of a text, and its quote; an empty quote if there is
    none."""
    start, quote = 0, ""
    for token in _QUOTES.finditer(text):
        found = token.group()
        if quote:
            if found == quote or (len(quote) == 1 and found == quote * 3):
                quote = ""
            elif found == "\n" and len(quote) == 1:
                quote = ""
            elif found.startswith("#") and quote in found:  # the text is part of a string, not a comment
                rest = found.split(quote, 1)[1]
                inner = _open_string(rest)
                start, quote = (token.end() - len(rest) + inner[0], inner[1]) if inner[1] else (0, "")
        elif found[0] in "\"'":
            start, quote = token.end(), found
    return start, quote


def _open_call(head: str) -> tuple[int, int] | None:
    """Return the position of the bracket of the innermost open call, and the number of arguments before the end."""
    plain = _STRINGS.sub(lambda found: "_" * len(found[0]), head)
    depth, commas = 0, 0
    for position in range(len(plain) - 1, -1, -1):
        sign = plain[position]
        if sign in ")]}":
            depth += 1
        elif sign in "([{":
            if depth:
                depth -= 1
            elif sign == "(":
                return position, commas
            elif sign == "[":  # a list of names counts as one argument
                commas = 0
            else:
                return None
        elif sign == "," and not depth:
            commas += 1
    return None
