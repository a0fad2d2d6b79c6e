"""The numbered steps by which an instance takes over its tasks."""
