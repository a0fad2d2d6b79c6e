"""Kafka clients and everything that talks to a broker; the only package that imports confluent_kafka.

`clients` creates consumers, producers and admin clients; `admin` and `internal_topics` manage topics; `record_batch` and `reading`
convert messages to columns; `journal` is the control journal; `partitioning` is Java's default partitioner; `embedded` runs a
single-node broker as a child process.
"""

from kstreams_repl.system import log_context as _log_context  # noqa: F401 - its loggers name application, instance and task
