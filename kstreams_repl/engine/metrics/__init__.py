"""Kafka Streams' metrics: the same names, groups, tags and recording levels, measured without per-record work.

`catalogue` lists every metric, and every missing one of Kafka Streams with the reason. `sensors` has the windowed statistics,
`metrics_registry` holds the metrics of one instance, `custom` those that processors add, `metrics_snapshot` is the form sent to the
driver, and `prometheus` formats them. Does not use Kafka or Spark; `host/instance/metrics/instance_metrics.py` records the values.
"""
