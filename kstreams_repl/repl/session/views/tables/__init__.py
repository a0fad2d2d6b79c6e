"""Topics and stores as tables of SQL and of Spark."""
