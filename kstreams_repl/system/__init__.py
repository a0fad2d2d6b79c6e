"""What every other floor stands on, one of each: errors, value types, secrets, files, processes, log context, Java.

In: nothing of ours. Out: small functions and values without knowledge of topologies, Kafka, Spark or notebooks. Read first: `errors`.
"""
