"""`Secret`: a setting that never shows itself.

It hides in repr, str, format and therefore in logs, exceptions and progress; it is no text, so no JSON encoder writes it. It *can* be
pickled, because client settings travel inside Spark closures to the workers that need them; `reveal` is called only where a client is made.
"""

from __future__ import annotations

import hmac

MASK = "********"


class Secret:
    """A text that shows as ``********``.

    Example:
        >>> Secret("hunter2")
        Secret(********)
        >>> f"{Secret('hunter2')}"
        '********'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        self._text: str = text.reveal() if isinstance(text, Secret) else text

    def reveal(self) -> str:
        """The text itself, for the client that needs it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)
