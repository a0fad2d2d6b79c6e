"""Two topologies on the same records from the same state: which rows of outputs and stores differ, and from which node on.

In: the application's topology and another one, commits to begin from, the records of the inputs from there on. Out: a `Comparison`. Nothing
reaches the application or its broker. Read first: `compare` (the order of the passes), then `side`, which processes the records.
"""
