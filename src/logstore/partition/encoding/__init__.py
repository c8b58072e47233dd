"""Turns what callers append into batches that are ready to be written."""
