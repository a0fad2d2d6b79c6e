"""Queries of the state of running applications, from any process: local stores, discovery of the others, and a server."""
