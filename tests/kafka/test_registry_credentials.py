"""A Schema Registry that asks who its clients are: a password, a bearer token, OAuth, certificates of clients."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_of
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.system.errors import SchemaRegistryError, SchemaRegistryUnavailableError
from tests.kafka.registry_gate import RegistryGate
from tests.secured_broker import token_endpoint, write_certificates

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
BEARER = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
STATIC = {**BEARER, "bearer.auth.credentials.source": "STATIC_TOKEN"}
OAUTH = {
    **BEARER, "bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "notebook",
    "bearer.auth.client.secret": "hunter2", "bearer.auth.scope": "schemas",
}  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


def written_and_read(settings: dict[str, Any], topic: str) -> Any:
    address = settings_of(settings)
    shown = repr(address)
    assert all(str(value) not in shown for name, value in settings.items() if name.endswith((".token", ".secret", ".info")))
    data = serdes.avro(POINT).for_topic(topic, "value", address).serialize({"x": 3})
    return serdes.registry.for_topic(topic, "value", address).deserialize(data)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["basic", "static token", "oauth"])
def test_a_client_with_the_credentials_writes_and_reads_and_others_are_told(registry: EmbeddedRegistry, name: str, how: str) -> None:
    with ExitStack() as stack:
        given: dict[str, Any] = {}
        if how == "basic":
            given, wrong = {"basic.auth.user.info": "me:right"}, {"basic.auth.user.info": "me:wrong"}
        elif how == "static token":
            given, wrong = {**STATIC, "bearer.auth.token": "right-token"}, {**STATIC, "bearer.auth.token": "wrong-token"}
        else:
            endpoint, other = (stack.enter_context(token_endpoint(user)) for user in ("notebook", "somebody"))
            given, wrong = ({**OAUTH, "bearer.auth.issuer.endpoint.url": url} for url in (endpoint, other))
        gate = stack.enter_context(RegistryGate(registry.url))
        gate.accepts = {
            "basic": lambda sent: sent == "Basic bWU6cmlnaHQ=",
            "static token": lambda sent: sent == "Bearer right-token",
            "oauth": lambda sent: subject_of(sent) == "notebook",
        }[how]
        assert written_and_read({"url": gate.url, **given}, name) == {"x": 3}
        for settings in ({"url": gate.url, **wrong}, {"url": gate.url}):
            with pytest.raises(SchemaRegistryError, match="HTTP 401"):
                written_and_read(settings, name)


def subject_of(authorization: str) -> Any:
    """Return the user in the header ``Authorization`` with a token of `token_endpoint`."""
    claims = authorization.removeprefix("Bearer ").split(".")[1:2]
    return json.loads(base64.urlsafe_b64decode(claims[0] + "==="))["sub"] if claims else None


@pytest.mark.slow
def test_no_record_is_skipped_because_the_token_endpoint_is_down(registry: EmbeddedRegistry, name: str) -> None:
    """An error of the registry makes records wait; any other would go to a handler that may skip them."""
    with token_endpoint() as endpoint:
        pass
    settings = {"url": registry.url, "max.retries": 0, **OAUTH, "bearer.auth.issuer.endpoint.url": endpoint}
    with pytest.raises(SchemaRegistryUnavailableError, match="Failed to retrieve token"):
        written_and_read(settings, name)


def test_a_registry_that_wants_a_certificate_gets_the_clients(registry: EmbeddedRegistry, name: str, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with RegistryGate(registry.url, tls=context) as gate:
        settings = {"url": gate.url, "ssl.ca.location": str(tmp_path / "ca.pem"), "max.retries": 0}
        assert written_and_read({**settings, "ssl.certificate.location": str(tmp_path / "client.pem")}, name) == {"x": 3}
        with pytest.raises(SchemaRegistryError, match="no trust between"):
            written_and_read(settings, name)
        del settings["ssl.ca.location"]
        with pytest.raises(SchemaRegistryError, match="no trust between"):
            written_and_read(settings, name)
