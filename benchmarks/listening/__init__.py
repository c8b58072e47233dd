"""The listener beside a stock broker of Kafka: one node each, the same client programs, the same machine.

``python -m benchmarks.listening`` measures everything and rewrites ``docs/listening-speed.md``. The modules,
from the bottom: ``measuring`` (what a measurement is, and how much of everything), ``frames`` (a connection
that sends what was encoded before), ``raw`` and ``librdkafka`` (what clients do), ``client`` (the process in
which they do it), ``busy`` (a process that serves and computes), ``servers`` (the processes that serve),
``parts`` (all measurements), ``page`` (goals, tables and the picture).

What is the same work: both servers run during the whole part, one client process asks one of them and then
the other, and another one is first in each round. The raw client sends requests that were encoded before, so
that the server is the limit; librdkafka is what Python programs use, and is often the limit itself.
"""
