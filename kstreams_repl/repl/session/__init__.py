"""The interface for notebooks: connect to a cluster (or to an embedded broker), look at values, sample, deploy, control, query by SQL."""

from __future__ import annotations

from kstreams_repl.host.kafka import clients as _clients  # noqa: F401 - first: without it the package to install is Kafka's client
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.connection import connect, current_session
from kstreams_repl.repl.session.session import Session
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.system import log_context as _log_context  # noqa: F401 - its loggers name application, instance and task

__all__ = ["Application", "ReadRecord", "Records", "Session", "connect", "current_session"]
