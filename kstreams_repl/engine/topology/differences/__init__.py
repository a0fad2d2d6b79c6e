"""What an edit changes: nodes and stores of two topologies compared, functions by fingerprint, schemas by field.

In: two topologies. Out: `TopologyDiff`. Read first: `diff`.
"""
