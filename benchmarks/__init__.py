"""logstore measured against other ways to keep records on one machine.

``python -m benchmarks`` runs everything and rewrites the results; ``python -m benchmarks.one`` measures one
figure. The modules, from the bottom: ``records`` (the data), ``contenders`` (who is measured), ``figures``
and ``large`` (what is measured, inside one process), ``measure`` and ``alone`` (fresh processes, rounds),
``results``, ``report`` and ``plot``.
"""
