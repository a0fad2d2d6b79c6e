"""The control channel: commands to instances, their reports, claims to slots and taps on nodes, by files or through the journal."""
