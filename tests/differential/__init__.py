"""Every way to read a log, held against one simple model over random histories of it.

``model.py`` is a list and a few sets; ``history.py`` makes a history from a seed and lets the model follow;
``readers.py`` lists the ways to read. A failure names its seed: ``python -m tests.differential SEED`` runs it
again.
"""
