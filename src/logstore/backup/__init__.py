"""Backups: a copy of a whole store, made while it is written."""
