"""Checking a log without changing it."""
