"""What changes a running application: edits, rollbacks, skipped records, and the versions that they write."""
