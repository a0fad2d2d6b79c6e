"""The production exception handler of an application's configuration, as the collector wants it."""

from __future__ import annotations

from kstreams_repl.config import StreamsConfig
from kstreams_repl.instance.collector import ProductionHandler
from kstreams_repl.runtime.handlers import ErrorContext, Response, resolve


def production_handler(config: StreamsConfig) -> ProductionHandler | None:
    """None for the default "fail". RETRY counts as FAIL: the client has retried already, and the commit is repeated as a
    whole.
    """
    handler = resolve(config["production.exception.handler"], "production.exception.handler")
    if handler is None:
        return None

    def decide(topic: str, error: Exception) -> bool:
        context = ErrorContext(None, "", topic, -1, -1, -1)
        return Response(handler(context, error)) is Response.CONTINUE

    return decide
