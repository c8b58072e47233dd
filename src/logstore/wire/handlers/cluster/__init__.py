"""Requests on the cluster."""
