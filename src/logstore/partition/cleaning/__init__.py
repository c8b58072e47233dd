"""Compaction and erasure: replacing segments by others with fewer records."""
