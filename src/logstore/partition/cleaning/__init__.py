"""Compaction and erasing: segments are written anew without some of their records."""
