"""Fixtures of the deployed host."""

from tests.spark.hosting import host, spark

__all__ = ["host", "spark"]
