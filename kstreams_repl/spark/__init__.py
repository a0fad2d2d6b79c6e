"""The Spark host: a deployed application is one Structured Streaming query whose micro-batches are epochs of instances.

`session` gets or starts Spark, `closure` ships the topology, `epoch` makes the query, `worker` is what runs in Spark's Python
workers, `deployment` is the application as the driver sees it. The only package that imports pyspark.
"""
