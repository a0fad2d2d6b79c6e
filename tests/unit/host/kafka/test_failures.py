from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.host.kafka.failures import is_fenced, is_unreachable, kafka_errors, translate, unknown_topic
from kstreams_repl.system.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ConfigError,
    InvalidNameError,
    KStreamsError,
    ProducerFencedError,
    ProductionError,
    UnknownTopicError,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, BrokerUnavailableError),
        (KafkaError._TRANSPORT, BrokerUnavailableError),
        (KafkaError._TIMED_OUT, BrokerUnavailableError),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, BrokerUnavailableError),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, BrokerUnavailableError),
        (KafkaError.LEADER_NOT_AVAILABLE, BrokerUnavailableError),
        (KafkaError._AUTHENTICATION, AuthenticationError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError),
        (KafkaError.TOPIC_EXCEPTION, InvalidNameError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ProductionError),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, ConfigError),
        (KafkaError._FENCED, ProducerFencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (KafkaError.CORRUPT_MESSAGE if hasattr(KafkaError, "CORRUPT_MESSAGE") else KafkaError._BAD_MSG, KStreamsError),
    ],
)
def test_each_client_error_has_its_type(code: int, kind: type[KStreamsError]) -> None:
    found = translate(KafkaException(KafkaError(code)), "testing", bootstrap_servers="b:1", topic="t")
    assert type(found) is kind


def test_a_fatal_error_that_only_names_the_fencing_is_fencing() -> None:
    assert is_fenced(KafkaError(KafkaError._FATAL, "This instance has been fenced by a newer instance"))
    assert is_fenced(KafkaError(KafkaError._FATAL, "Producer attempted an operation with an old epoch: stale producer epoch"))
    assert not is_fenced(KafkaError(KafkaError._FATAL, "something else"))


def test_refused_credentials_are_not_unreachable() -> None:
    assert is_unreachable(KafkaError(KafkaError._TRANSPORT))
    assert not is_unreachable(KafkaError(KafkaError._AUTHENTICATION))


def test_a_missing_certificate_is_a_refused_login_although_the_connection_only_broke() -> None:
    reason = "ssl://b:1/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116"
    found = translate(KafkaError(KafkaError._TRANSPORT), "connecting", bootstrap_servers="b:1", reason=reason)
    assert type(found) is AuthenticationError and "certificate required" in found.message


def test_the_topic_without_a_right_is_named() -> None:
    found = translate(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "writing", bootstrap_servers="b:1", topic="orders")
    assert "no right to do this on topic orders" in found.message and found.topic == "orders"


def test_the_reason_that_the_client_reported_is_in_the_message() -> None:
    found = translate(KafkaError(KafkaError._TIMED_OUT), "listing", bootstrap_servers="b:1", reason="Connection refused")
    assert str(found).startswith("listing: no broker answered at b:1 (Connection refused)\nHint: ")
    assert found.bootstrap_servers == "b:1"


def test_an_unknown_topic_is_answered_with_a_near_name_or_with_what_there_is() -> None:
    assert "did you mean 'flights'?" in str(unknown_topic("flihgts", ["flights", "planes"]))
    assert "existing topics: a, b" in str(unknown_topic("zzz", ["b", "a"]))
    assert "no topics yet" in str(unknown_topic("zzz", []))


def test_client_errors_leave_the_block_translated_with_their_cause() -> None:
    with pytest.raises(UnknownTopicError) as caught, kafka_errors("reading", topic="t"):
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
    assert isinstance(caught.value.__cause__, KafkaException)
