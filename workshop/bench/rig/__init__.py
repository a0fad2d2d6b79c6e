"""What the benchmarks share: a testbed with broker and Spark, workloads and queries, measuring, results as JSON lines.

In: options of a benchmark. Out: measured values beside their targets. Read first: `testbed`.
"""
