"""Tests against a stock Apache Kafka: its tools, broker and client read what we write, and the reverse."""
