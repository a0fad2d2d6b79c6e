"""Test tools for users: the topology test driver, conformance cases, record literals."""
