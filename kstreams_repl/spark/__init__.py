"""The Spark host: a deployed application is one Structured Streaming query whose micro-batches are epochs of instances.

`spark_session` gets or starts Spark, `plan_serialization` ships the topology, `epoch` defines the query, `worker` runs in Spark's Python
workers, `deployment` is the application as the driver sees it. The only package that imports pyspark.
"""

from kstreams_repl import log_context as _log_context  # noqa: F401 - its loggers name application, instance and task
