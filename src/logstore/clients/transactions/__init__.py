"""Transactions of a producer, and what is known of those of a store."""
