"""What a generation runs: checked topics, assigned tasks, and the plan in pickled form."""
