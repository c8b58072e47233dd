"""Hostile bytes and arguments for every function of the compiled module, held against the plain code.

``targets.py`` has the table: one function per row. ``program.py`` runs it for some seconds in a process of
its own, where the module is built with sanitizers, so that one byte read too far ends the run. A failure
names its case; ``python -m tests.fuzz.program --seed TEXT --case NAME NUMBER`` runs it again.
"""
