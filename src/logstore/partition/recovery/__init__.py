"""What a crash leaves, and making a log of it again."""
