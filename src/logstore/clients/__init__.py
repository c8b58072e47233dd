"""What sends to a broker and receives from it: producers and consumers."""
