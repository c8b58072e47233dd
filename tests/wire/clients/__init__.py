"""Clients of other people, as they come from their packages, against a store that listens.

``features.py`` has the features: what a client is told to do, and what the store must then hold. Each client
is a file that does what it is told: ``python_confluent.py``, ``Features.java``, ``features.js`` and so on.
``page.py`` makes the table of docs/clients.md of what is found; ``python -m tests.wire.clients`` writes it.
"""
