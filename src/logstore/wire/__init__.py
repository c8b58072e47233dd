"""Kafka's protocol: its messages, and the frames in which they travel."""
