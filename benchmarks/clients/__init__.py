"""Producers, consumers, groups and transactions, beside others that do the same work in one process.

``python -m benchmarks.clients`` measures everything and rewrites ``docs/client-speed.md``. The modules, from
the bottom: ``measuring`` (what a measurement is, and its process), ``rates``, ``waiting``, ``offsets``,
``partitions`` and ``transactions`` (the measurements), ``parts`` (all of them), ``page`` (goals, tables and
the picture).

What is the same work: each record is a call of its own, from one thread, and has 100 bytes and no key.
Records are grouped as each library groups them, by about 2,000 where that is a setting. *Without a flush* the
clock stops when the operating system has every record: the end of the process takes none, a power cut may.
*Flushed* means that the disk was asked to keep each group, and has them all when the clock stops.
librdkafka's mock broker keeps some megabytes of records in its memory: the end of the process takes all, so
that it does less than the others; but the records go through a socket.
"""
