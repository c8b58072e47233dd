"""Records in, records out, and the offsets at which they are."""
