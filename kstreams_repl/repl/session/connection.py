"""`connect`: a session with the user's cluster, or with an embedded one; all sessions close when the process ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.schemas.schema_registry import PREFIX, settings_of
from kstreams_repl.host.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.host.kafka.embedded.jars import cache_directory, locked_jars
from kstreams_repl.host.spark.planning.instance_count import SETTING, processors
from kstreams_repl.host.spark.startup.prestart import start_ahead
from kstreams_repl.repl.session.broker import SessionRegistry
from kstreams_repl.repl.session.cluster_client import DEFAULT_PARTITIONS
from kstreams_repl.repl.session.progress_messages import Report, default_report
from kstreams_repl.repl.session.session import Session
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.shutdown import close_at_exit
from kstreams_repl.system.extras import require
from kstreams_repl.system.java import find_java

_latest: list[tuple[tuple[object, ...], Session]] = []


def connect(
    bootstrap_servers: str | None = None,
    *,
    spark: object = None,
    config: Mapping[str, object] | None = None,
    schema_registry: str | Mapping[str, object] | None = None,
    directory: str | os.PathLike[str] | None = None,
    report: Report | None = None,
    prestart: bool | None = None,
    **client_settings: str | float | bool | Callable[..., object] | None,
) -> Session:
    """Return a session. Connecting again with the same arguments returns the same session, so a cell can be run again.

    Args:
        bootstrap_servers: ``host:port``, comma separated; None: an embedded Kafka that starts when it is first needed and ends
            with this process. Its data are kept in `directory`.
        spark: a Spark session, a master (``"local[8]"``, ``"spark://host:7077"``), or settings of Spark with it
            (``{"spark.master": "spark://host:7077", "spark.executor.memory": "2g"}``); None: a local one, which starts in the
            background.
        config: settings of every application of this session, by their Kafka Streams names.
        schema_registry: address of the Schema Registry, or the settings of confluent-kafka's ``SchemaRegistryClient``
            (``url``, ``basic.auth.user.info``, …); ``"embedded"``: one that starts now and ends with this process, its
            schemas kept in `directory`.
        directory: where data and state are kept: a path, ``"temporary"``, or None for ``.kstreams`` in the current directory.
        report: called with each line of progress; None: print them (to standard error outside notebooks).
        prestart: start Spark now, in the background, so that the first deploy need not wait for it. None: yes, unless the
            environment variable ``KSTREAMS_PRESTART`` is ``0``; a given Spark session, or one on a cluster, is never started
            ahead.
        **client_settings: the Kafka clients' settings, with underscores for dots: ``sasl_password="..."``,
            ``security_protocol="SASL_SSL"``.

    Raises:
        BrokerUnavailableError: no broker answers at the given address.
        JavaNotFoundError, KStreamsError: there is no Java, or no library that fetches the embedded broker; the hint has the pip
            command.
        ConfigError: an unknown setting.

    Example:
        >>> session = connect()                               # doctest: +SKIP
        >>> session = connect("broker:9092", spark="local[8]")  # doctest: +SKIP
    """
    properties = {name.replace("_", "."): value for name, value in client_settings.items()}
    where = SessionDirectory(directory)
    given_spark = spark if spark is None or isinstance(spark, str | Mapping) else id(spark)
    asked = (bootstrap_servers, given_spark, repr(where), properties, dict(config or {}), schema_registry)
    for before, session in _latest:
        if before == asked and not session.closed:
            return session
    registry = None
    if schema_registry == "embedded":
        registry = SessionRegistry(where.schemas, report or default_report)
        schema_registry = registry.start()
    config = {**{f"{PREFIX}{name}": value for name, value in settings_of(schema_registry)}, **(config or {})}
    settings = None if bootstrap_servers is None else ClientSettings(bootstrap_servers, properties)
    if settings is None:  # check now what the embedded broker needs when it starts
        find_java()
        if any(not (cache_directory() / jar.file_name).exists() for jar in locked_jars()):
            require("jgo")  # downloads the missing jars
    if settings is not None:
        ensure_reachable(settings)
    session = Session(
        settings,
        spark=None if isinstance(spark, str | Mapping) else spark,
        master=spark if isinstance(spark, str | Mapping) else None,
        config=config,
        directory=where,
        client_settings=properties,
        report=report or default_report,
    )
    if spark is None and (os.environ.get("KSTREAMS_PRESTART") != "0" if prestart is None else prestart):
        session.client.spark.prestart = start_ahead(session.master, _expected_instances(StreamsConfig(session.config)))
    if registry is not None:
        session.client.at_close.append(registry.stop)
    close_at_exit(session)
    _latest[:] = [(asked, session)]
    return session


def _expected_instances(config: StreamsConfig) -> int:
    """Return how many instances the first application will probably have."""
    return len(config.thread_groups) if SETTING in config.given else min(processors(), DEFAULT_PARTITIONS)


def current_session() -> Session | None:
    """Return the session that `connect` returned last, while it is open."""
    return _latest[0][1] if _latest and not _latest[0][1].closed else None
