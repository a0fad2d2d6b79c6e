"""Conformance cases: topology + input + clock -> what Kafka Streams does, checked on the JVM."""
