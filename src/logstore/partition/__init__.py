"""One partition's directory: segments, indexes, the log, recovery, retention."""
