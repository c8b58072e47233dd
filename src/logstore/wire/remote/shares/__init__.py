"""Members of share groups, and their sessions."""
