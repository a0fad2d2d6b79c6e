"""A broker with SASL and TLS listeners and ACLs, besides the plain listener on which every client is the administrator."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory

USER, PASSWORD = "analyst", "correct horse"
_KAFKA = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Right:
    """One entry of an access control list for `USER`."""

    operation: str
    resource: str
    name: str
    prefixed: bool = False

    def binding(self, principal: str) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        kind, operation = ResourceType[self.resource], AclOperation[self.operation]
        return AclBinding(kind, self.name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


class SecuredBroker:
    """Its addresses, and what its administrator does. Listeners: SASL_PLAINTEXT (SCRAM, OAUTHBEARER), SASL_SSL (SCRAM), SSL (mTLS)."""

    def __init__(self, broker: EmbeddedBroker, ports: dict[str, int], directory: Path) -> None:
        self.broker = broker
        self.ports = ports
        self.directory = directory
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def grant(self, *rights: Right, principal: str = f"User:{USER}") -> None:
        for future in self.admin.create_acls([right.binding(principal) for right in rights]).values():
            future.result(30)

    def revoke_all(self, principal: str = f"User:{USER}") -> None:
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in self.admin.delete_acls([everything]).values():
            future.result(30)


@contextmanager
def secured_broker(directory: Path) -> Iterator[SecuredBroker]:
    """Start the broker in `directory`, which also receives the certificates (``ca.pem``, ``client.pem``)."""
    names = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
    write_certificates(directory)
    listeners = ",".join(f"{name}://127.0.0.1:0" for name in names)  # the broker binds free ports and advertises them
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ("PLAINTEXT", *names)) + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    unsecured = f"{_KAFKA}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{_KAFKA}.scram.ScramLoginModule required;"
        properties[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule required;"
        properties[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = unsecured
    with EmbeddedBroker(directory / "broker", properties=properties) as broker:
        secured = SecuredBroker(broker, _bound_ports(BrokerDirectory(directory / "broker")), directory)
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, credentials, PASSWORD.encode())
        for future in secured.admin.alter_user_scram_credentials([change]).values():
            future.result(30)
        try:
            yield secured
        finally:
            del secured.admin  # else it reports, on the screen, that the broker has gone


def _bound_ports(directory: BrokerDirectory) -> dict[str, int]:
    """The port of each listener, as the broker registered it with its controller."""
    found = re.findall(r"BrokerEndpoint\(name='(\w+)', host='[^']*', port=(\d+)", directory.log_path.read_text())
    return {name: int(port) for name, port in found}


def write_certificates(directory: Path) -> None:
    """Write a certificate authority, a certificate of the broker and one of the client, keys included, as PEM files."""
    authority = _Identity.signed_by(None, "authority")
    _write(directory / "ca.pem", authority.certificate)
    for file, name in (("server.pem", "broker"), ("client.pem", USER)):
        identity = _Identity.signed_by(authority, name)
        key = identity.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(directory / file, identity.certificate, authority.certificate, key=key)


@dataclass(frozen=True)
class _Identity:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def signed_by(cls, authority: _Identity | None, name: str) -> _Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(
                subject if authority is None else authority.certificate.subject, subject, key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=2))
            .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        )
        return cls(builder.sign(key if authority is None else authority.key, hashes.SHA256()), key)


def _write(path: Path, *certificates: x509.Certificate, key: bytes = b"") -> None:
    path.write_bytes(key + b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates))
    path.chmod(0o600)


@contextmanager
def token_endpoint(user: str = USER) -> Iterator[str]:
    """An OAuth token endpoint on loopback that issues tokens for `user`; yields its address. Tokens are not signed."""

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            now = int(time.time())
            claims = {"sub": user, "iat": now, "exp": now + 300, "scope": "kafka"}
            token = ".".join((*(_part(part) for part in ({"alg": "none"}, claims)), ""))
            body = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
