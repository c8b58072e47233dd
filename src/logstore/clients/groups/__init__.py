"""The calls on consumer groups: looking at them, resetting and deleting them."""
