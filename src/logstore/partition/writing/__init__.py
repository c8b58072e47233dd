"""Changing a log: one writer, made of parts."""
