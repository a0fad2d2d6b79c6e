"""A real single-node Kafka broker as a child process, for use without a cluster."""

from kstreams_repl.host.kafka.embedded.broker import EmbeddedBroker
from kstreams_repl.host.kafka.embedded.jars import cache_directory, ensure_jars

__all__ = ["EmbeddedBroker", "cache_directory", "ensure_jars"]
