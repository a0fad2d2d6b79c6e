"""`connect`: a session with the user's cluster, or with an embedded one; and the end of all sessions when the process ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kstreams_repl.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.session.directory import SessionDirectory
from kstreams_repl.session.ending import close_at_exit
from kstreams_repl.session.progress import Report, default_report
from kstreams_repl.session.session import Session

_latest: list[tuple[tuple[Any, ...], Session]] = []


def connect(
    bootstrap_servers: str | None = None,
    *,
    spark: Any = None,
    config: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
    report: Report | None = None,
    **client_settings: Any,
) -> Session:
    """A session. Connecting again with the same arguments gives the same session, so a cell can be run again.

    Args:
        bootstrap_servers: ``host:port``, comma separated; None = an embedded Kafka that starts when it is first needed and ends with this
            process. Its data are kept in `directory`.
        spark: a Spark session, or a master (``"local[8]"``, ``"spark://host:7077"``); None = a local one, started by the first deploy.
        config: settings of every application of this session, by their Kafka Streams names.
        directory: where data and state are kept: a path, ``"temporary"``, or None for ``.kstreams`` in the current directory.
        report: takes the lines that say what is going on; None prints them (to standard error outside notebooks).
        **client_settings: the Kafka clients' settings, with underscores for dots: ``sasl_password="..."``,
            ``security_protocol="SASL_SSL"``.

    Raises:
        BrokerUnavailableError: nobody answers at the address given.
        ConfigError: a setting that does not exist.

    Example:
        >>> session = connect()                               # doctest: +SKIP
        >>> session = connect("broker:9092", spark="local[8]")  # doctest: +SKIP
    """
    properties = {name.replace("_", "."): value for name, value in client_settings.items()}
    where = SessionDirectory(directory)
    given_spark = spark if spark is None or isinstance(spark, str) else id(spark)
    asked = (bootstrap_servers, given_spark, repr(where), properties, dict(config or {}))
    for before, session in _latest:
        if before == asked and not session.closed:
            return session
    settings = None if bootstrap_servers is None else ClientSettings(bootstrap_servers, properties)
    if settings is not None:
        ensure_reachable(settings)
    session = Session(
        settings,
        spark=None if isinstance(spark, str) else spark,
        master=spark if isinstance(spark, str) else None,
        config=config,
        directory=where,
        client_settings=properties,
        report=report or default_report,
    )
    close_at_exit(session)
    _latest[:] = [(asked, session)]
    return session


def current_session() -> Session | None:
    """The session that `connect` gave last, while it is open."""
    return _latest[0][1] if _latest and not _latest[0][1].closed else None
