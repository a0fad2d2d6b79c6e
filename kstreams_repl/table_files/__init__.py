"""Tables as sinks: Parquet, Delta and Iceberg files, exactly once (docs/design/018-tables.md)."""
