"""Committed offsets of groups: the topic ``__consumer_offsets``, and the table in front of it."""
