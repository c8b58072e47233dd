"""One segment: its files, its indexes, and walking the batches in them."""
