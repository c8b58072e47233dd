"""Every way to read, held against one simple model: random histories of a log, and of a store with clients.

``model.py`` is a list and a few sets. ``history.py`` makes the history of a log from a seed, and the model
follows; a failure names its seed: ``python -m tests.differential SEED`` runs it again. ``store.py`` has what
happens to a store with transactions over several partitions, in any order. ``readers.py`` lists the ways to
read.
"""
