"""Values at the nodes: sampled from topics, or tapped in the running tasks."""
