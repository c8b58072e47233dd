"""Share groups: many consumers on one partition (KIP-932)."""
