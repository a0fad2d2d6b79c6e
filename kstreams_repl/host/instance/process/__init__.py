"""The process that runs an instance: memory, garbage collection, its place on the executor."""
