"""The streaming query of a generation, and what it runs in Spark's Python workers: one slot of an application per epoch."""
