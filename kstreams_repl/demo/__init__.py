"""The main job: a year of real departures through a topology on Spark, checked number by number against the source files."""
