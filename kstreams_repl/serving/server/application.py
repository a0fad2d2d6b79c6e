"""The ASGI application: the gate, then the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kstreams_repl.host.query_tokens import QueryTokens
from kstreams_repl.serving.server.access import Gate, defect
from kstreams_repl.serving.server.answers import error_answer
from kstreams_repl.serving.server.routes import ROUTES, RouteEntry, Served
from kstreams_repl.system.errors import CallError, KStreamsError


def make_application(served: Served, tokens: QueryTokens, hosts: Collection[str]) -> ASGIApp:
    """Return the application of a query server.

    Args:
        hosts: host names by which it may be asked.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await served.router.close()

    app = Starlette(
        routes=[Route(entry.path, _endpoint(served, entry), methods=[entry.method]) for entry in ROUTES],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused},
    )
    app.router.redirect_slashes = False
    return Gate(app, tokens, hosts, served.limits, served.traffic)


def _endpoint(served: Served, entry: RouteEntry) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.scope["kstreams_route"] = entry.path
        try:
            return await entry.handler(served, request)
        except KStreamsError as error:
            return error_answer(error)
        except Exception:  # else Starlette answers with a text
            return defect(request.scope)

    return endpoint


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what no route matches: no such path, or another method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = "this path has other methods" if status == 405 else "there is no such path"
    return error_answer(CallError(what, hint="/docs lists the routes", status=status))
