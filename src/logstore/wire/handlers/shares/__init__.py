"""Requests of share groups."""
