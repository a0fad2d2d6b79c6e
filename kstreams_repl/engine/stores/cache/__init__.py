"""The write-back cache of a store and the record cache of a task."""
