"""The queues of a task and the choice of the next record."""
