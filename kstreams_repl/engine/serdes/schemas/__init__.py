"""Serdes whose schemas are kept in a Schema Registry: Avro, Protobuf, JSON Schema."""
