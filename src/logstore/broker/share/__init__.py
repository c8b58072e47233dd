"""Share groups (KIP-932): many workers on one partition, and a lock for each record that one of them has."""
