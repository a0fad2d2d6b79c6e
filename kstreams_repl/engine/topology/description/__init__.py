"""`describe()`, in the text of Kafka Streams and back, in Java's order; and where the user's code made a node.

In: a topology, or such a text. Out: `TopologyDescription`. Read first: `describe`.
"""
