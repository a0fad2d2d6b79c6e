"""How a generation can end by itself: failed instances, dead workers, missing executors, changed input topics."""
