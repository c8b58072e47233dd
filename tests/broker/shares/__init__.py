"""The states of share-partitions, and the topic that has them."""
