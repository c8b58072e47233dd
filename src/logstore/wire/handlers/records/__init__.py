"""Requests on records."""
