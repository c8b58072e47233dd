"""The state of a log beside its records: checkpoints, producers, leader epochs, its directory."""
