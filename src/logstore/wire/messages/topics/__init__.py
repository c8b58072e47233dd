"""Topics, their partitions, and their settings."""
