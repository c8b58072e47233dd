"""What the cluster is made of, and which requests it serves."""
