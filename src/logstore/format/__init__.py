"""Bytes to values and back: Kafka's on-disk formats. No I/O, no clock, no randomness in this layer."""
