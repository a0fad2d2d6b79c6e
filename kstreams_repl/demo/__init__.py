"""The demo: a year of real departures through a topology on Spark; every number is checked against the source files."""
