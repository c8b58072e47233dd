"""Requests about records: produce, fetch, and what is looked up in logs."""
