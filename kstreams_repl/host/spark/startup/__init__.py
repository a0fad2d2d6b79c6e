"""Spark itself: its JVM, its session, the daemon of its Python workers."""
