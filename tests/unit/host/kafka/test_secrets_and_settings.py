from __future__ import annotations

import json
import logging
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import orjson
import pytest

from kstreams_repl.host.kafka import clients
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer, make_transactional_producer
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.secrets import Secret, from_plain, secret, to_plain, without_secrets

PASSWORD = "hunter2-and-more"
SETTINGS = ClientSettings(
    "broker:9093",
    {
        "security.protocol": "SASL_SSL",
        "sasl.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "consumer.fetch.min.bytes": 5,
        "producer.linger.ms": 7,
    },
)


def test_a_secret_hides_in_every_text() -> None:
    secret = Secret(PASSWORD)
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret, repr([secret]), repr({"password": secret})):  # noqa: UP031
        assert PASSWORD not in text


def test_no_json_encoder_writes_a_secret() -> None:
    for dump in (json.dumps, orjson.dumps):
        with pytest.raises(TypeError):
            dump({"password": Secret(PASSWORD)})


def test_a_secret_survives_the_way_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(Secret(PASSWORD))).reveal() == PASSWORD
    assert Secret(Secret(PASSWORD)) == Secret(PASSWORD) != Secret("other")


def test_settings_show_names_and_never_secrets() -> None:
    for text in (repr(SETTINGS), str(SETTINGS), str(SETTINGS.shown()), str(SETTINGS.properties)):
        assert PASSWORD not in text
    assert "SASL_SSL" in repr(SETTINGS) and SETTINGS.shown()["sasl.password"] == "********"


def test_settings_survive_the_way_to_a_worker_and_stay_equal() -> None:
    copy = pickle.loads(pickle.dumps(SETTINGS))
    assert copy == SETTINGS and hash(copy) == hash(SETTINGS)
    assert copy.revealed("admin")["sasl.password"] == PASSWORD


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        SETTINGS.bootstrap_servers = "elsewhere"  # type: ignore[misc]
    with pytest.raises(TypeError):
        SETTINGS.properties["sasl.password"] = "x"  # type: ignore[index]


def test_prefixed_settings_reach_their_kind_of_client_only() -> None:
    assert SETTINGS.revealed("consumer")["fetch.min.bytes"] == 5
    assert "fetch.min.bytes" not in SETTINGS.revealed("producer")
    assert SETTINGS.revealed("producer")["linger.ms"] == 7
    assert not any(name.startswith(("consumer.", "producer.")) for name in SETTINGS.revealed("admin"))


@pytest.mark.parametrize("address", ["", "  "])
def test_an_empty_address_is_a_config_error(address: str) -> None:
    with pytest.raises(ConfigError):
        ClientSettings(address)


def test_two_addresses_that_differ_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        ClientSettings("a:1", {"bootstrap.servers": "b:1"})
    assert "bootstrap.servers" not in ClientSettings("a:1", {"bootstrap.servers": "a:1"}).properties


def test_records_of_a_transaction_wait_for_larger_batches_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []
    monkeypatch.setattr(clients, "_make", lambda kind, settings, *_: made.append(settings))
    make_producer(ClientSettings("a:1"))
    make_transactional_producer(ClientSettings("a:1"), transactional_id="t")
    make_transactional_producer(SETTINGS, transactional_id="t")
    assert [settings["linger.ms"] for settings in made] == [10, 100, 7]
    assert {settings["compression.type"] for settings in made} == {"none"}


def test_an_error_about_settings_does_not_tell_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    bad = ClientSettings("a:1", {"sasl.password": PASSWORD, "security.protocol": "no such"})
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as caught:
        make_producer(bad)
    assert PASSWORD not in str(caught.value) and PASSWORD not in caplog.text


def test_a_password_of_digits_is_a_secret_too() -> None:
    settings = ClientSettings("a:1", {"sasl.password": 12345678})
    assert "12345678" not in repr(settings) + str(settings.shown()) and settings.revealed("admin")["sasl.password"] == "12345678"


def test_a_reference_travels_and_its_secret_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", PASSWORD)
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    for reference in (secret("env:BROKER_PASSWORD"), secret(f"file:{file}")):
        settings = ClientSettings("a:1", {"security.protocol": "SASL_SSL", "sasl.password": reference, "sasl.username": "me"})
        sent = pickle.dumps(settings)
        plain = json.dumps({name: to_plain(value) for name, value in settings.properties.items()})
        for text in (repr(settings), str(settings.shown()), plain, sent.decode("latin-1")):
            assert PASSWORD not in text and reference.source in text
        for there in (pickle.loads(sent), ClientSettings("a:1", {n: from_plain(v) for n, v in json.loads(plain).items()})):
            assert there == settings and there.revealed("producer")["sasl.password"] == PASSWORD
    file.write_text("rotated")
    assert settings.revealed("admin")["sasl.password"] == "rotated"  # read by each client


def test_a_secret_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    for place in ("env:NO_SUCH_VARIABLE_HERE", f"file:{tmp_path}/none"):
        with pytest.raises(ConfigError, match=r"the secret (env|file):") as caught:
            ClientSettings("a:1", {"sasl.password": secret(place)}).revealed("admin")
        assert caught.value.hint
    for given in (PASSWORD, "vault:x"):  # the text may be the secret itself
        with pytest.raises(ConfigError, match="the location of a secret") as refused:
            secret(given)
        assert given not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('connect("b:1", sasl_password="hunter2", x="y")', 'connect("b:1", sasl_password="********", x="y")'),
        ("{'ssl.key.password' : 'hunter2'}", "{'ssl.key.password' : '********'}"),
        ("config = {'basic.auth.user.info': r'me:hunter2'}", "config = {'basic.auth.user.info': r'********'}"),
        ('sasl_password="hunter2', 'sasl_password="********"'),
        (r'sasl_password="hun\"ter2")', 'sasl_password="********")'),
        ('secret("env:NAME"), password=getpass()', 'secret("env:NAME"), password=getpass()'),
        ('words.filter(lambda key, value: value != "password")', 'words.filter(lambda key, value: value != "password")'),
    ],
)
def test_literals_of_secret_settings_are_masked_in_source_text(line: str, shown: str) -> None:
    assert without_secrets(line) == shown
