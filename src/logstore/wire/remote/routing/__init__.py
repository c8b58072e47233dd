"""Who is to be asked: leaders, coordinators and the controller of a cluster, again where that helps."""
