"""A node: a store whose partitions are replicated to others, with a listener and a coordinator.

``node`` puts it together. ``partition`` does what the rules of :mod:`logstore.replica.rules` ask for with one
log, ``fetching`` copies from leaders, ``broker`` answers clients and followers, ``controlling`` elects, and
``assigning`` holds in the store what the coordinator says that this node holds.
"""
