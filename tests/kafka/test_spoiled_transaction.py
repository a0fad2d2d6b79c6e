"""A transaction of which the broker refused a record: the client keeps the records after it without a word."""

from __future__ import annotations

import random

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import ConfigError, ProductionError

pytestmark = pytest.mark.kafka
LIMIT = 2_000


def test_a_spoiled_transaction_tells_the_refusal_when_it_is_flushed_or_else_committed(
    admin: Admin, settings: ClientSettings, name: str
) -> None:
    admin.create_topic(name, 1)
    admin.alter_topic_configs(name, {"max.message.bytes": str(LIMIT)})
    producer = TransactionalProducer(settings, name, timeout_ms=20_000, batch_size=LIMIT)
    try:
        producer.initialise()
        producer.begin()
        rng = random.Random(7)
        for number in range(400):
            producer.client.produce(name, rng.randbytes(3 * LIMIT if number == 37 else 300), b"k")
        with pytest.raises(ProductionError) as caught:
            producer.flush()  # what waits behind the refused record is kept, or given back at once: that is a race inside the client
            producer.commit()
        assert caught.value.fields["refused"] is True
    finally:
        producer.close()


def test_a_timeout_that_the_broker_does_not_allow_is_an_error_of_the_settings(settings: ClientSettings, name: str) -> None:
    """It counted as a transaction in doubt, which the instance took over again and again for ever."""
    producer = TransactionalProducer(settings, f"{name}-0", timeout_ms=1_000_000)
    with pytest.raises(ConfigError, match="higher than the broker allows"):
        producer.initialise()
    producer.close()
