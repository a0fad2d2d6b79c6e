"""The caller of asynchronous nodes: limits, retries, circuit breaker. It has no transport."""
