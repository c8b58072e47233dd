"""Kafka's messages: what its protocol and its internal topics are made of."""
