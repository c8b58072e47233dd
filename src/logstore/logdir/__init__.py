"""A directory of topics: topic catalogue, partitions, background work."""
