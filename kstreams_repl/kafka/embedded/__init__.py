"""A real single-node Kafka as a child process, for everybody who has no cluster at hand."""

from kstreams_repl.kafka.embedded.broker import EmbeddedBroker
from kstreams_repl.kafka.embedded.jars import cache_directory, ensure_jars

__all__ = ["EmbeddedBroker", "cache_directory", "ensure_jars"]
