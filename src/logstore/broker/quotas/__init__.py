"""Quotas: which holds for a client, its rate over small windows of time, and how long it waits."""
