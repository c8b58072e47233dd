"""The one writer of a log: changing it, and making the changes durable."""
