"""What opening a log does: find what is there, tell a torn end from damage, put right."""
