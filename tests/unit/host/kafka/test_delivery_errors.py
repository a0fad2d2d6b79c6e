"""What an error of the producer says: of its record, of another one, or of the producer itself."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.host.kafka.delivery_errors import describe_delivery, end_of_client, send_errors
from kstreams_repl.system.errors import OutputRetryError, ProducerFencedError, ProductionError


def test_a_producer_that_has_come_to_its_end_is_no_fault_of_the_record() -> None:
    """In the client's own words, when a transaction was open for too long."""
    error = KafkaError(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
    found = send_errors(KafkaException(error), "out", 3)
    assert isinstance(found, OutputRetryError) and "out" in found.message
    assert isinstance(describe_delivery(error, "out"), OutputRetryError)
    assert isinstance(describe_delivery(KafkaError(KafkaError.UNKNOWN_PRODUCER_ID, "gone", True), "out"), OutputRetryError)


def test_one_that_was_fenced_says_so_where_it_knows() -> None:
    error = KafkaError(KafkaError._FATAL, "This instance has been fenced by a newer instance")
    assert isinstance(send_errors(KafkaException(error), "out", 3), ProducerFencedError)
    assert isinstance(describe_delivery(error, "out"), ProducerFencedError)


def test_a_record_that_is_too_large_is_its_own_fault() -> None:
    found = describe_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "out")
    assert isinstance(found, ProductionError) and not found.fields["retriable"]


def test_what_a_call_raises_for_another_is_told_apart_by_being_fatal() -> None:
    fenced = KafkaException(KafkaError(KafkaError._FENCED, "old epoch", True))
    assert isinstance(end_of_client(fenced), ProducerFencedError)
    assert isinstance(end_of_client(KafkaException(KafkaError(KafkaError._INCONSISTENT, "sequence", True))), OutputRetryError)
    assert end_of_client(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))) is None
