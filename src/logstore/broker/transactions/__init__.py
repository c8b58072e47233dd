"""Transactions: what is decided for each transactional id, and the log that remembers it."""
