"""Share groups of a cluster (KIP-932), which has three parts in it.

* The node that leads ``__consumer_offsets`` coordinates them: it has the members.
* The node that leads ``__share_group_state`` keeps the states of records, for all of the cluster.
* The leader of a partition gives its records to workers, and tells the second of each change.
"""
