"""The control journal of an application: its records, the fold that reads them, and its writers and readers on the broker."""
