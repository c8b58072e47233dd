"""What a store counts, in one place. :meth:`.Store.metrics` returns it, as a
:class:`~logstore.metrics.snapshot.Metrics`.

:mod:`~logstore.metrics.declared` has the table of all metrics; :mod:`~logstore.metrics.reading` fills it.
:mod:`logstore.metrics.prometheus` and :mod:`logstore.metrics.opentelemetry` export it, each with its own
library.
"""
