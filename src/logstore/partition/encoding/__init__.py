"""From what callers give to batches, by the topic's rules."""
