"""Requests of groups."""
