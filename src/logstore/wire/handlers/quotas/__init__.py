"""Requests on quotas."""
