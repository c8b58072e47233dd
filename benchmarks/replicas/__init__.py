"""Three nodes beside three stock brokers of Kafka, with three replicas of everything, on one machine.

``python -m benchmarks.replicas`` measures everything and rewrites ``docs/replication-speed.md``. The modules,
from the bottom: ``servers`` (the processes of both clusters), ``asking`` (what a client does and sees),
``parts`` (all measurements), ``page`` (goals and tables).

What is the same work: one cluster runs at a time, for three JVMs beside three nodes would measure how two
cores are shared; the clusters take turns. The clients are librdkafka's, in a process of their own.
"""
