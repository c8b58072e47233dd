"""Fetches of consumers and of followers, and their sessions."""
