"""What the nodes of a cluster know in common, kept in files of one machine or in ZooKeeper.

``interface`` says what a coordinator is, and ``coordinator`` is it, on any :mod:`tree <.tree>` of small texts
with versions. ``files`` and ``zookeeper`` are such trees. ``layout`` has the names and the JSON of Kafka's
znodes, and ``registering`` the rules for the lives of nodes.
"""
