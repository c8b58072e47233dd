"""Replacing segments by others with fewer records: compaction and erasure."""
