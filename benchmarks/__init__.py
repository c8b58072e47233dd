"""Compares logstore with other ways to keep records on one machine.

``python -m benchmarks`` runs everything and rewrites the results; ``python -m benchmarks.one`` measures one
figure. The modules, from the bottom: ``records`` (the data), ``contenders`` (what is compared), ``figures``
and ``large`` (the measurements, inside one process), ``measure`` and ``alone`` (fresh processes, rounds),
``results``, ``report``, ``plot`` and ``curves``.
"""
