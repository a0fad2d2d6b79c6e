"""Kafka, Spark and the loop between them: clients, the control journal, instances, and the query whose epochs run them.

In: a topology and settings. Out: committed records, state on disk, reports. Read first: `instance.instance`, then `spark.deployment`.
"""
