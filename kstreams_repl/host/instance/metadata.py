"""Where the stores of an application are: the values of discovery, under Kafka Streams' names (`HostInfo`, `StreamsMetadata`,
`KeyQueryMetadata`). Plain frozen values that travel as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import JsonObject, TopicPartition, endpoint_of


@dataclass(frozen=True, slots=True, order=True)
class HostInfo:
    """The address of a query server.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.HostInfo.build_from_endpoint("127.0.0.1:8081")
        HostInfo(host='127.0.0.1', port=8081, tls=False)
    """

    host: str
    port: int
    tls: bool = False

    @classmethod
    def build_from_endpoint(cls, endpoint: str) -> HostInfo:
        """Return the address that ``application.server`` names.

        Args:
            endpoint: ``host:port``; an IPv6 address in square brackets.

        Raises:
            ConfigError: it is not ``host:port``.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.HostInfo.build_from_endpoint("[::1]:8081").host
            '::1'
        """
        try:
            host, port = endpoint_of(endpoint)
        except ValueError as error:
            hint = "for example 127.0.0.1:8081; port 0 takes a free one"
            raise ConfigError(f"{error}, got {endpoint!r}", hint=hint, key="application.server") from error
        return cls(host, port, endpoint.startswith("https://"))

    @property
    def url(self) -> str:
        """The base URL of the server, without a slash at its end.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.HostInfo("127.0.0.1", 8081).url
            'http://127.0.0.1:8081'
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """What one host holds: the stores and input partitions of its active tasks, and those of its standby copies.

    Attributes:
        host_info: the address of its query server; `UNKNOWN` while none has reported one.
        place: name of the executor's state directory; ``driver`` on the driver's own host.
    """

    host_info: HostInfo
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TopicPartition] = frozenset()
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[TopicPartition] = frozenset()
    place: str = ""

    UNKNOWN: ClassVar[HostInfo] = HostInfo("unavailable", -1)

    @property
    def host(self) -> str:
        """The host of `host_info`.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StreamsMetadata(ks.queries.HostInfo("127.0.0.1", 8081)).host
            '127.0.0.1'
        """
        return self.host_info.host

    @property
    def port(self) -> int:
        """The port of `host_info`.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StreamsMetadata(ks.queries.HostInfo("127.0.0.1", 8081)).port
            8081
        """
        return self.host_info.port

    def plain(self) -> JsonObject:
        """Return it as JSON values.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StreamsMetadata(ks.queries.HostInfo("127.0.0.1", 8081)).plain()["port"]
            8081
        """
        return {
            "host": self.host,
            "port": self.port,
            "tls": self.host_info.tls,
            "place": self.place,
            "stores": sorted(self.state_store_names),
            "partitions": sorted(map(str, self.topic_partitions)),
            "standby_stores": sorted(self.standby_state_store_names),
            "standby_partitions": sorted(map(str, self.standby_topic_partitions)),
        }


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """Which hosts have the row of a key: the one with the active task, and those with standby copies.

    Attributes:
        active_host: `NOT_AVAILABLE.active_host` while no server of the active task is known.
        partition: the partition of the key, -1 when unknown.
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo] = frozenset()
    partition: int = -1

    NOT_AVAILABLE: ClassVar[KeyQueryMetadata]

    @property
    def is_available(self) -> bool:
        """Whether a server of the active task is known.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.KeyQueryMetadata.NOT_AVAILABLE.is_available
            False
        """
        return self.active_host.port >= 0

    def plain(self) -> JsonObject:
        """Return it as JSON values.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.KeyQueryMetadata.NOT_AVAILABLE.plain()["partition"]
            -1
        """
        return {
            "active": None if not self.is_available else self.active_host.url,
            "standbys": sorted(host.url for host in self.standby_hosts),
            "partition": self.partition,
        }


KeyQueryMetadata.NOT_AVAILABLE = KeyQueryMetadata(StreamsMetadata.UNKNOWN)


@dataclass(frozen=True, slots=True)
class LagInfo:
    """How far a local copy of a store partition is behind its changelog.

    Attributes:
        current_offset_position: offset up to which it has read.
        end_offset_position: end of the changelog.
        offset_lag: the difference, at least 0.
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """Number of offsets between both.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.LagInfo(7, 10).offset_lag
            3
        """
        return max(0, self.end_offset_position - self.current_offset_position)
