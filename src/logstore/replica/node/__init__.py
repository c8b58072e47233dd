"""A node: a store whose partitions are replicated to others, with a listener and a coordinator.

``node`` puts it together. ``partition`` does what the rules of :mod:`logstore.replica.rules` ask for with one
log, ``fetching`` copies from leaders, ``broker`` answers clients and followers, ``controller`` has what one
of the nodes does for all, and ``assigning`` holds in the store what the coordinator gives to this node.
"""
