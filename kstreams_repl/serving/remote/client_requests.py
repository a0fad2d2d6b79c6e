"""What both clients of query servers share: what to ask of whom, and how to read the answer (`client` asks).

Actors: the *first server*, whose address the user gives and which gets the token; the *owners* of partitions, which the first server's
metadata name. A read of one key goes to its owner at once, signed (`host.query_tokens`), because addresses come from a topic. When the
owner does not answer, or the partition is moving, the metadata are read again and the read is repeated until its time is over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import urlsplit

import httpx

from kstreams_repl.engine import serdes
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.query_tokens import signature
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.read import Read, ReadOptions
from kstreams_repl.serving.queries.rows import StoreRow, value_of
from kstreams_repl.serving.queries.wire import from_wire, position_from_wire
from kstreams_repl.serving.remote.remote_errors import error_of
from kstreams_repl.system.durations import as_seconds
from kstreams_repl.system.errors import CallError, ConfigError, KStreamsError, StateStoreNotAvailableError
from kstreams_repl.system.secrets import Secret
from kstreams_repl.system.types import JsonMapping, JsonObject

FRESH_SECONDS = 5.0
PAUSE_SECONDS = 0.05
MOST_PAUSE = 0.5
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """The answer of a server.

    Attributes:
        rows: each with its columns: key, value, and timestamp, window_start, window_end, valid_to where the store has them.
        position: how far into its inputs the state was.
        stale: whether a standby copy answered, `lag` records behind.
        position_unknown: partitions whose position is not known: nothing was committed since their task was taken over.
    """

    rows: list[StoreRow]
    position: Position
    stale: bool = False
    lag: int = 0
    next: str | None = None
    position_unknown: tuple[int, ...] = ()

    @property
    def value(self) -> Any:
        """What a local read of the store returns for one key: the value, `ValueAndTimestamp` or `VersionedRecord`; None if absent.

        Example:
            >>> RemoteResult([{"key": "a", "value": 2}], Position()).value
            2
        """
        return value_of(self.rows[0]) if self.rows else None


@dataclass(slots=True)
class _Where:
    """What a client knows of the hosts."""

    read_at: float = -1e9
    owners: Mapping[str, JsonMapping] = field(default_factory=dict)
    serdes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request."""

    base: str
    method: str
    target: str
    body: bytes = b""
    trusted: bool = True


class ClientRequests:
    """What both clients share: settings, and what to ask of whom. `trusted`: whether the first server gets the token itself."""

    def __init__(self, url: str, token: Secret, timeout: float, *, trusted: bool = True) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ConfigError(f"expected the URL of a query server, got {url!r}", hint="for example http://127.0.0.1:8081", key="url")
        self.url = url.rstrip("/")
        self._token = token
        self._trusted = trusted
        self._timeout = timeout
        self._where = _Where()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _headers(self, ask: Ask) -> dict[str, str]:
        host = urlsplit(ask.base).netloc
        given = self._token.reveal()
        gets_token = ask.trusted and self._trusted
        authorization = f"Bearer {given}" if gets_token else signature(self._token, ask.method, host, ask.target, ask.body)
        return {"Authorization": authorization, "Host": host, **({"Content-Type": "application/json"} if ask.body else {})}

    def _route(self, read: Read, turn: int) -> Ask:
        """Return whom to ask: the owner of the key at first, the first server (which knows more, or falls back) after a failure."""
        base = None
        if read.has_key and turn == 0:
            base = self._owner(read)
        return Ask(self.url if base is None else base, *read.request(), trusted=base is None or base == self.url)

    def _owner(self, read: Read) -> str | None:
        partitions, name = self._where.owners.get(read.store), self._where.serdes.get(read.store)
        if not partitions or name is None:
            return None
        try:
            data = serdes.of(name).serialize(read.key)
        except KStreamsError:  # a serde of the user's, or not its key: the server decides
            return None
        host = partitions.get(str(partition_for_key(data or b"", len(partitions)))) or {}
        active = host.get("active")
        return active if isinstance(active, str) else None

    def _learn(self, metadata: JsonMapping, stores: JsonMapping) -> None:
        self._where = _Where(
            time.monotonic(), dict(metadata["stores"]), {str(store["name"]): str(store["key"]) for store in stores["stores"]}
        )

    def _result(self, response: httpx.Response) -> RemoteResult:
        plain = plain_of(response)
        return RemoteResult(
            [{name: from_wire(value) for name, value in row.items()} for row in plain["rows"]],
            position_from_wire(plain.get("position")),
            bool(plain.get("stale")),
            int(plain.get("lag", 0)),
            plain.get("next"),
            tuple(plain.get("position_unknown", ())),
        )

    def _read(self, kind: str, store: str, key: object = None, **options: Unpack[ReadOptions]) -> Read:
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        unknown = given.keys() - ReadOptions.__annotations__.keys()
        if unknown:
            raise CallError(
                f"{kind} of {store}: unknown option {', '.join(sorted(unknown))}",
                hint=f"the options are {', '.join(ReadOptions.__annotations__)}",
            )
        if "wait" in given:
            given["wait"] = as_seconds(given["wait"], "wait")
        return Read(kind, store, key, bound=given.pop("position", None), **given)


def plain_of(response: httpx.Response) -> JsonObject:
    try:
        plain = response.json()
    except ValueError:
        plain = None
    if response.status_code != 200 or not isinstance(plain, dict):
        raise error_of(plain, response.status_code)
    return plain


def may_retry(error: KStreamsError) -> bool:
    return bool(getattr(error, "retriable", False))


def unreachable(base: str, error: Exception) -> StateStoreNotAvailableError:
    why = f"the query server {base} does not answer: {type(error).__name__}"
    return StateStoreNotAvailableError(why, hint="ask again, or another server")


def token_of(token: str | os.PathLike[str] | Secret) -> Secret:
    """Return a token, or the look token of a file of tokens."""
    if isinstance(token, Secret):
        return token
    path = Path(token)
    if isinstance(token, os.PathLike) or path.suffix == ".json":
        try:
            return Secret(str(json.loads(path.read_text(encoding="utf-8"))["look"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "app.query_token_path names the file"
            raise ConfigError(f"the token cannot be read from {path}", hint=hint, path=str(path)) from error
    return Secret(token)


class Events:
    """Puts the lines of an event stream together."""

    def __init__(self) -> None:
        self._event: dict[str, str] = {}

    def add(self, line: str) -> JsonObject | None:
        """Return the event that a line completes."""
        if line:
            name, _, value = line.partition(": ")
            self._event[name] = value
            return None
        event, self._event = self._event, {}
        if "event" not in event:
            return None
        content = json.loads(event["data"])
        return {"event": event["event"], "id": event.get("id"), **{name: from_wire(value) for name, value in content.items()}}


STREAM = httpx.Timeout(10.0, read=30.0)


def subscription(url: str, store: str, after: str | None, snapshot: bool | None) -> Ask:
    query = {"from": after} if after else {}
    if snapshot is not None:
        query["snapshot"] = str(snapshot).lower()
    return Ask(url, "GET", f"/subscribe/{store}?{httpx.QueryParams(query)}")


def reads_of_many(store: str, keys: Iterable[object], stale: bool, partition: int | None = None, headers: bool = False) -> Iterator[Read]:
    asked = list(keys)
    for first in range(0, len(asked), _MANY):
        yield Read("many", store, keys=asked[first : first + _MANY], stale=stale, partition=partition, headers=headers)


def next_read(read: Read, page: Any) -> Read:
    return read._replace(after=(page[0], page[1], from_wire(page[2])))


def safe(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None


