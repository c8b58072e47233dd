"""The changes of a log by its one writer, and making them durable."""
