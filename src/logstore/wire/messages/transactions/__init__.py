"""Producers and their transactions."""
