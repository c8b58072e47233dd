"""Turning what a crash leaves into a log again."""
