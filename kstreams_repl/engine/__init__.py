"""Kafka Streams without input and output: topologies, the DSL, operators, serdes, stores, the tasks that run them, and the commit protocol.

In: records, a clock, stores and the interfaces of a producer. Out: records, changelog writes and offsets to commit. Nothing here knows a
broker, Spark, DuckDB's views or Jupyter. Read first: `runtime.task`, then one operator, for example `operators.streams.stream_filter`.
"""
