"""Workers of queues: what they take, and what they say of it."""
