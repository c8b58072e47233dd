"""Requests on topics and settings."""
