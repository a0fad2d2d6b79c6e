"""Counts in words: "1 row", "2,000 rows"."""

from __future__ import annotations


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return a number and its noun, in the form that goes with it.

    Args:
        plural: plural form of a word that does not take an s; None: the word with an s.

    Example:
        >>> counted(1, "row"), counted(2000, "row"), counted(2, "topology", "topologies")
        ('1 row', '2,000 rows', '2 topologies')
    """
    return f"{number:,} {word if number == 1 else plural or word + 's'}"
