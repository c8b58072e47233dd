"""From what callers append to batches that can be written as they are."""
