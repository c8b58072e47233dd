"""Files of a log: segments, their indexes, and how they are walked."""
