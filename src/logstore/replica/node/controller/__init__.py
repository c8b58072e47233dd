"""What a node does as the controller: elect leaders, move partitions, change topics, and take its own store's
topics along."""
