"""Queries of the state of running applications, from any process: local stores, discovery of the others, and a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl.serving.client import AsyncQueryClient, QueryClient, connect, connect_async
    from kstreams_repl.serving.queryable_state import open_state

__all__ = ["AsyncQueryClient", "QueryClient", "connect", "connect_async", "open_state"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kstreams_repl.system.extras import extras

    with extras():
        if name == "open_state":
            from kstreams_repl.serving.queryable_state import open_state

            return open_state
        from kstreams_repl.serving import client
    return getattr(client, name)
