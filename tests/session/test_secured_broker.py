"""Sessions and applications on a broker that asks who they are (SCRAM, OAUTHBEARER, mTLS) and what they may do (ACLs)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

import kstreams_repl as ks
from kstreams_repl.host.instance.control.journal_taps import JournalTapClient
from kstreams_repl.host.journal.journal import ensure_journal
from kstreams_repl.host.journal.journal_records import TapRequest
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import AuthenticationError, AuthorizationError
from tests.secured_broker import PASSWORD, USER, Right, SecuredBroker, secured_broker, token_endpoint

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def scram(listener: str, password: object = PASSWORD) -> dict[str, Any]:
    return {"security_protocol": listener, "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": password}


@contextmanager
def connected(secured: SecuredBroker, how: str, directory: Path) -> Iterator[ks.Session]:
    """A session of `USER` by one of the listeners; its principal is ``User:analyst``, or the certificate's name."""
    certificates = {"ssl_ca_location": str(secured.directory / "ca.pem")}
    with ExitStack() as stack:
        settings: dict[str, Any]
        if how == "mtls":
            listener = "SSL"
            client = str(secured.directory / "client.pem")
            settings = {"security_protocol": "SSL", "ssl_certificate_location": client, "ssl_key_location": client, **certificates}
        elif how == "oauthbearer":
            listener = "SASL_PLAINTEXT"
            settings = {
                "security_protocol": listener,
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_method": "oidc",
                "sasl_oauthbearer_client_id": "notebook",
                "sasl_oauthbearer_client_secret": "hunter2",
                "sasl_oauthbearer_token_endpoint_url": stack.enter_context(token_endpoint()),
            }
        else:
            listener = how
            settings = {**scram(listener), **(certificates if listener == "SASL_SSL" else {})}
        yield stack.enter_context(
            ks.connect(secured.address(listener), directory=directory, report=lambda line: None, **settings)
        )


def word_count(name: str) -> ks.StreamsBuilder:
    """Counts words by another key: an input, a repartition topic, a store with its changelog, an output."""
    builder = ks.StreamsBuilder()
    words = builder.stream(f"{name}-words", key_serde="string", value_serde="string")
    counts = words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
    counts.to_stream().to(f"{name}-counts", key_serde="string", value_serde="long")
    return builder


def application_rights(name: str) -> dict[str, Right]:
    """The rights that docs/tasks/cluster.md lists, for the application `name` of `word_count`."""
    return {
        "read the input": Right("READ", "TOPIC", f"{name}-words"),
        "write the output": Right("WRITE", "TOPIC", f"{name}-counts"),
        "create internal topics": Right("CREATE", "TOPIC", f"{name}-app-", prefixed=True),
        "read internal topics": Right("READ", "TOPIC", f"{name}-app-", prefixed=True),
        "write internal topics": Right("WRITE", "TOPIC", f"{name}-app-", prefixed=True),
        "configure internal topics": Right("DESCRIBE_CONFIGS", "TOPIC", f"{name}-app-", prefixed=True),
        "commit offsets": Right("READ", "GROUP", f"{name}-app"),
        "use transactions": Right("WRITE", "TRANSACTIONAL_ID", f"{name}-app", prefixed=True),
    }


@pytest.fixture
def name(secured: SecuredBroker) -> str:
    """A prefix of this test's topics, which the administrator has created."""
    name = f"t{uuid.uuid4().hex[:8]}"
    topics = [NewTopic(f"{name}-{topic}", 2, 1) for topic in ("words", "counts")]
    for future in secured.admin.create_topics(topics).values():
        future.result(30)
    return name


RECORDS = 700
CONFIG = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}


@pytest.fixture
def administrator(secured: SecuredBroker, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(secured.broker.bootstrap_servers), directory=SessionDirectory(tmp_path / "admin")) as session:
        yield session


def expected(session: ks.Session, name: str) -> dict[str, int]:
    """Produce the input; return the counts that must come out."""
    words = [f"w{number % 7}" for number in range(RECORDS)]
    session.produce(f"{name}-words", [(str(number), word) for number, word in enumerate(words)])
    return dict(Counter(words))


def output(session: ks.Session, name: str) -> dict[str, int]:
    return {row.key: row.value for row in session.read(f"{name}-counts", n=10_000, key_serde="string", value_serde="long")}


PRINCIPALS = {"SASL_PLAINTEXT": f"User:{USER}", "SASL_SSL": f"User:{USER}", "oauthbearer": f"User:{USER}", "mtls": f"User:CN={USER}"}


@pytest.mark.parametrize("how", PRINCIPALS)
def test_an_application_is_exact_with_just_its_rights(
    secured: SecuredBroker, administrator: ks.Session, how: str, name: str, tmp_path: Path
) -> None:
    counts = expected(administrator, name)
    rights = [*application_rights(name).values(), Right("READ", "TOPIC", f"{name}-counts")]
    secured.grant(*rights, principal=PRINCIPALS[how])
    with connected(secured, how, tmp_path) as session:
        app = session.deploy(word_count(name), f"{name}-app", config=CONFIG)
        assert app.wait(90)
        assert output(session, name) == counts
        assert dict(session.sql("SELECT key, value FROM counts").fetchall()) == counts
        shown = f"{session!r} {session.settings} {app!r} {session.settings.shown()}"
        assert PASSWORD not in shown and "hunter2" not in shown
        app.stop()


@pytest.mark.parametrize("missing", application_rights("any"))
def test_a_missing_right_is_named_and_nothing_is_lost(
    secured: SecuredBroker, administrator: ks.Session, missing: str, name: str, tmp_path: Path
) -> None:
    counts, rights = expected(administrator, name), application_rights(name)
    left_out = rights.pop(missing)
    secured.grant(*rights.values())
    with connected(secured, "SASL_PLAINTEXT", tmp_path) as session:
        with pytest.raises(AuthorizationError) as refused:
            for _ in range(2):  # the settings of internal topics are read when these exist already
                app = session.deploy(word_count(name), f"{name}-app", config=CONFIG)
                app.wait(90)
                app.stop()
        print(f"ACL {missing}: {refused.value.message}")
        assert KINDS[left_out.resource] in refused.value.message
        secured.grant(left_out)
        failed = session.applications.get(f"{name}-app")
        app = session.deploy(word_count(name), f"{name}-app", config=CONFIG) if failed is None else failed.resume()
        assert app.wait(90)
        assert output(administrator, name) == counts
        app.stop()


KINDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactional id"}


@pytest.mark.parametrize("how", ["password", "no certificate", "unknown authority"])
def test_wrong_credentials_are_refused_at_once(secured: SecuredBroker, how: str, tmp_path: Path) -> None:
    if how == "password":
        listener, settings = "SASL_PLAINTEXT", scram("SASL_PLAINTEXT", "wrong")
    elif how == "no certificate":
        listener, settings = "SSL", {"security_protocol": "SSL", "ssl_ca_location": str(secured.directory / "ca.pem")}
    else:
        listener, settings = "SASL_SSL", scram("SASL_SSL")
    with pytest.raises(AuthenticationError) as refused:
        ks.connect(secured.address(listener), directory=tmp_path, report=lambda line: None, **settings)
    assert PASSWORD not in str(refused.value) and "sasl.* and ssl.*" in (refused.value.hint or "")


def test_a_tap_through_a_journal_that_may_only_be_read_names_the_missing_right(
    secured: SecuredBroker, administrator: ks.Session, name: str, tmp_path: Path
) -> None:
    """The values at a node of an application in executors: its request and the answers are records of the journal."""
    ensure_journal(administrator.client.admin, name)
    request = TapRequest(1, "ab" * 8, "counts", 10, 200, 0, 0)
    secured.grant(Right("READ", "TOPIC", f"{name}-journal"))
    with connected(secured, "SASL_PLAINTEXT", tmp_path) as session:
        client = JournalTapClient(session.settings, name)
        with pytest.raises(AuthorizationError, match=f"counts of {name} to the journal"):
            client.put(request)
        client.close()
        secured.grant(Right("WRITE", "TOPIC", f"{name}-journal"))
        client = JournalTapClient(session.settings, name)
        client.put(request)
        client.close()
