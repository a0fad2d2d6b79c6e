"""Everything that speaks to a Kafka broker; the only package that imports confluent_kafka.

`clients` makes consumers, producers and admin clients, `admin` and `internal_topics` look after topics, `record_batch` and `reading` turn
messages into columns, `journal` is the control journal, `partitioning` places keys as Java does, `embedded` runs a broker of our own.
"""
