"""Runs the functions of asynchronous nodes: event loop, threads, time limits, repetitions."""
