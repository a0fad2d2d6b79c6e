"""Of cases that are too many for every run, another part every day. The slow tier tries all."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TypeVar

Case = TypeVar("Case")


def daily_share(cases: Iterable[Case], of: int) -> list[Case]:
    """Return today's ``1/of`` of the cases."""
    return list(cases)[date.today().toordinal() % of :: of]
