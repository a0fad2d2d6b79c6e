"""The query server: state of one application over HTTP, one process per host, apart from the instances (docs/tasks/queries.md)."""
