"""Consumer groups: who belongs to them, and the offsets that they commit."""
