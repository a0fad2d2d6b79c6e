"""`ClusterClient`: what the parts of a session share: the cluster, Spark, settings, directory, session files, known serdes.

It is at the bottom of this package: deploy, edit, attach, read, produce, sample, export and the views take it, or less. It knows
neither the session nor its applications.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from kstreams_repl.engine import serdes as serde_library
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_from, use_by_default
from kstreams_repl.engine.topology.names import validate_application_id, validate_name
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.repl.session.broker import SessionBroker
from kstreams_repl.repl.session.progress_messages import Report, default_report
from kstreams_repl.repl.session.session_directory import SessionDirectory, closed_error
from kstreams_repl.repl.session.session_file import SessionFiles
from kstreams_repl.repl.session.shutdown import end_all
from kstreams_repl.repl.session.spark_host import SparkHost
from kstreams_repl.repl.session.topics.read import read_records
from kstreams_repl.repl.session.topics.records import Records
from kstreams_repl.repl.session.topics.topic_serdes import Pair, TopicSerdes, recognise
from kstreams_repl.system.forks import forked_error, when_forked

DEFAULT_PARTITIONS = 4


class ClusterClient:
    """A Kafka cluster, given or embedded, with what this process knows of it.

    Args:
        settings: of the given cluster; None: an embedded broker, which starts when it is first needed.
        spark: hosts the applications; None: a local Spark session.
        config: settings of every application.
        client_settings: of the embedded broker's clients.
        report: called with each line of progress.

    Attributes:
        topic_configs: settings of the topics that it creates.
        variables: the notebook's variables: SQL looks up dataframes there last.
    """

    def __init__(
        self,
        settings: ClientSettings | None,
        *,
        spark: SparkHost | None = None,
        config: Mapping[str, object] | None = None,
        directory: SessionDirectory | None = None,
        client_settings: Mapping[str, object] | None = None,
        report: Report = default_report,
    ) -> None:
        self.directory = directory or SessionDirectory(None)
        self.report = report
        self.config = dict(config or {})
        registry = settings_from(StreamsConfig(self.config).client)  # rejects an unknown setting now, not at deploy
        if registry:
            use_by_default(registry)
        self.spark = spark or SparkHost(None, None)
        self.serdes = TopicSerdes()
        self.counter = RecordCounter()
        self.variables: Mapping[str, object] = {}
        self.closed = False
        self._pid = os.getpid()
        self.at_close: list[Callable[[], object]] = []
        """Called when the session closes: servers and followers of its applications."""
        self._given = settings
        self._client_settings = dict(client_settings or {})
        self._admin: Admin | None = None
        when_forked(self, lambda copy: copy.leave())
        self.broker = broker = None if settings is not None else SessionBroker(self.directory.broker, lambda line: self.report(line))
        self.topic_configs: dict[str, str] = {}
        if broker is not None:
            self.topic_configs["retention.ms"] = "-1"
            self.directory.home = lambda: broker.start().directory

    # ---- the cluster

    @property
    def settings(self) -> ClientSettings:
        """Client settings with the addresses of the brokers. Starts the embedded broker if it is not running.

        Raises:
            KStreamsError: the session is closed.
        """
        self.ensure_open()
        if self._given is not None:
            return self._given
        assert self.broker is not None
        return ClientSettings(self.broker.start().bootstrap_servers, self._client_settings)

    @property
    def started(self) -> bool:
        """Whether a cluster can be queried without starting one."""
        return not self.closed and (self.broker is None or self.broker.started)

    @property
    def admin(self) -> Admin:
        """Client for the topics, offsets and groups of the cluster."""
        settings = self.settings
        if self._admin is None or self._admin.settings != settings:
            self._admin = Admin(settings)
        return self._admin

    def ensure_open(self) -> None:
        """Raise if it is closed, or another process's.

        Raises:
            KStreamsError: it is closed.
            ForkedProcessError: it belongs to the process from which this one was forked.
        """
        self.ensure_own()
        if self.closed:
            raise closed_error()

    def ensure_own(self) -> None:
        """Raise if it belongs to another process.

        Raises:
            ForkedProcessError: this process was forked from the one that connected.
        """
        if os.getpid() != self._pid:
            raise forked_error("this session", self._pid)

    def leave(self) -> None:
        """Count as closed in a forked child: what a session would end there is its parent's."""
        self.closed, self._admin, self.at_close = True, None, []

    def close(self) -> None:
        """End what this session has opened for its applications, and allow no more calls."""
        ends, self.at_close = self.at_close, []
        end_all(ends)
        self.closed, self._admin = True, None

    # ---- applications

    @property
    def state_root(self) -> Path:
        """``state.dir`` of the applications that set none."""
        return state_root(StreamsConfig({"state.dir": str(self.directory.state), **self.config}))

    def application_config(self, name: str, settings: Mapping[str, object]) -> StreamsConfig:
        """Return the settings of an application: its own, then those of every application.

        Raises:
            InvalidNameError: `name` cannot be an application id.
            ConfigError: an unknown setting.
        """
        validate_application_id(name)
        state = {} if "state.dir" in self.config or "state.dir" in settings else {"state.dir": str(self.directory.state)}
        own = {"application.id": name, "bootstrap.servers": self.settings.bootstrap_servers}
        return StreamsConfig({**self.config, **state, **settings, **own})

    @cached_property
    def files(self) -> SessionFiles:
        """Session files with the source texts of the applications."""
        return SessionFiles(self.directory.path)

    # ---- topics

    def create_topic(
        self, topic: str, *, partitions: int = DEFAULT_PARTITIONS, configs: Mapping[str, str] | None = None, exist_ok: bool = True
    ) -> bool:
        """Create a topic. Return False when it exists already.

        Raises:
            InvalidNameError: Kafka does not allow the name.
        """
        return self.admin.create_topic(
            validate_name(topic, "topic"), partitions, configs={**self.topic_configs, **(configs or {})}, exist_ok=exist_ok
        )

    def read(self, topic: str, n: int | None, *, start: object = None, key_serde: object = None, value_serde: object = None) -> Records:
        """Return records of a topic, as `Session.read`."""
        key, value = self.serdes_of(topic, key_serde, value_serde)
        return read_records(self.admin, self.counter, topic, n, start=start, key_serde=key, value_serde=value)

    def serdes_of(self, topic: str, key_serde: object = None, value_serde: object = None) -> Pair:
        """Return (key serde, value serde) of a topic: the given ones, else the known ones; None where there is neither."""
        key, value = self.serdes.of(topic)
        return (
            key if key_serde is None else serde_library.resolve(key_serde),
            value if value_serde is None else serde_library.resolve(value_serde),
        )

    def recognise_serdes(self, topic: str) -> Pair:
        """Return the serdes that the last records of a topic suggest."""
        return recognise(self.admin, topic)
