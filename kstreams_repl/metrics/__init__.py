"""Kafka Streams' metrics: the same names, groups, tags and recording levels, measured without work per record.

`catalogue` lists every metric, and every one of Kafka Streams' that is missing, with the reason. `sensors` has the windowed
statistics, `registry` holds what one instance measures, `snapshot` is what travels to the driver and `prometheus` writes it
down. Free of Kafka and Spark; `instance/meter.py` feeds it.
"""
