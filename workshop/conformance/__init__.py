"""Conformance cases: topology, input and clock, with the result of Kafka Streams, which was recorded on the JVM."""
