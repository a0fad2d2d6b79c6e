"""What a notebook talks to: connect to a cluster (or to an embedded broker), look, sample, deploy, control, ask by SQL."""

from __future__ import annotations

from kstreams_repl.dsl.examples import attach
from kstreams_repl.session.application import Application
from kstreams_repl.session.connecting import connect, current_session
from kstreams_repl.session.examples import EXAMPLES
from kstreams_repl.session.records import ReadRecord, Records
from kstreams_repl.session.session import Session

__all__ = ["Application", "ReadRecord", "Records", "Session", "connect", "current_session"]

attach([Session, Application], EXAMPLES, {"Session": "", "Application": ""})
