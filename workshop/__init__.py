"""What works on this project and is not installed: benchmarks, the comparison with the JVM, the commands `test` and `docs`."""
