"""How partitions are divided among the members of a group, by its leader or by the coordinator. No I/O, no
clock, no chance."""
