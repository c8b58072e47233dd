"""Reading a log: records, columns, raw batches, single records, tables."""
