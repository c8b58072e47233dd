"""Requests on who may do what."""
