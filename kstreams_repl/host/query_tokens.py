"""The tokens of an application's query servers, and the signature with which one server asks another.

Two tokens of 256 bits, *look* and *control*, are made at first use in a file that only its owner can read. They travel in the
``Authorization`` header, and to executors inside Spark's closure. Addresses of other servers come from the journal, which is a topic:
a token is never sent there. A request to such an address is *signed* for this address, path, body and half a minute instead.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.secrets import Secret

FILE = "query-tokens.json"
SCHEME = "KStreams-Signed"
SECONDS = 30.0
RIGHTS = ("look", "control")


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """The two tokens: `view` (in the file: ``look``), and `control`, which has the right to look, too."""

    view: Secret
    control: Secret

    def right_of(self, token: str) -> str | None:
        """Return ``look`` or ``control``; None for any other text. Takes the same time for all."""
        given = token.encode("utf-8", "replace")
        found = [hmac.compare_digest(given, secret.reveal().encode()) for secret in (self.view, self.control)]
        return "control" if found[1] else "look" if found[0] else None


def tokens_in(directory: Path) -> QueryTokens:
    """Return the tokens of a directory; create them at first use.

    Raises:
        ConfigError: other users can read the file, or it is damaged.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / FILE
    made = json.dumps({right: secrets.token_urlsafe(32) for right in RIGHTS})
    draft = directory / f".{FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w", encoding="utf-8") as out:
            out.write(made)
        try:
            os.link(draft, path)  # whole or not at all, and never over tokens in use
        except FileExistsError:
            pass
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> QueryTokens:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(handle, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            hint = f"chmod 600 {path}; or delete it: new ones are made"
            raise ConfigError(f"other users can read the tokens in {path}", hint=hint, path=str(path))
        try:
            content = json.load(file)
            view, control = (str(content[right]) for right in RIGHTS)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"the tokens in {path} cannot be read", hint="delete the file: new ones are made", path=str(path)) from error
    if min(len(view), len(control)) < 43 or view == control:
        raise ConfigError(f"the tokens in {path} are too short or equal", hint="delete the file: new ones are made", path=str(path))
    return QueryTokens(Secret(view), Secret(control))


def token_of(authorization: str) -> str | None:
    """Return the token of an ``Authorization`` header: of ``Bearer``, or the password of ``Basic``, which browsers ask for."""
    scheme, _, content = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return content.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(content.strip(), validate=True).decode("utf-8").partition(":")[2]
        except ValueError:  # not Base64, not ASCII, not UTF-8
            return None
    return None


def signature(token: Secret, method: str, host: str, target: str, body: bytes = b"", *, now: float | None = None) -> str:
    """Return the ``Authorization`` header of a request to an address that is not trusted with the token.

    Args:
        host: the ``Host`` header, ``host:port``.
        target: path and query string as sent.
    """
    at = str(int(time.time() if now is None else now))
    return f"{SCHEME} {at}:{_mac(token, method, host, target, body, at)}"


def is_signed(tokens: QueryTokens, header: str, method: str, host: str, target: str, body: bytes = b"") -> bool:
    """Return whether a header is the signature of this request with the look token, made within the last half minute."""
    scheme, _, content = header.partition(" ")
    at, _, mac = content.partition(":")
    if scheme != SCHEME or not at.isdecimal() or len(at) > 12 or abs(time.time() - int(at)) > SECONDS:
        return False
    wanted = _mac(tokens.view, method, host, target, body, at)
    return hmac.compare_digest(mac.encode("utf-8", "replace"), wanted.encode())


def _mac(token: Secret, method: str, host: str, target: str, body: bytes, at: str) -> str:
    text = "\n".join((method, host.lower(), target, at, hashlib.sha256(body).hexdigest()))
    return hmac.new(token.reveal().encode(), text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
