"""The data source ``killed``: it writes as ``logstore`` does, and processes die on the way where told to.

A test leaves orders in a directory beside the store, one file each, named ``<step>.<passes before>``. The
content says who dies: ``worker``, ``executor``, or the id of a process to take along; ``raise`` and ``sleep``
kill nobody. Whoever carries an order out renames it first, so it is carried out once, and a test can count.
"""

from __future__ import annotations

import os
import signal
import time

from logstore.spark import commits
from logstore.spark.batch_writer import BatchWriter
from logstore.spark.options import Options, Use
from logstore.spark.source import LogstoreSource
from logstore.spark.stream_writer import StreamWriter


def orders_of(path):
    return path + ".orders"


def order(path, step, *, passes=0, who="worker"):
    """Let a process die when it reaches a step, after it has passed it so many times."""
    os.makedirs(orders_of(path), exist_ok=True)
    temporary = f"{orders_of(path)}/.new"
    with open(temporary, "w") as file:
        file.write(who)
    os.rename(temporary, f"{orders_of(path)}/{step}.{passes}")


def obeyed(path):
    """The orders that were carried out."""
    return sorted(name for name in os.listdir(orders_of(path)) if name.startswith("done "))


def obey(path, step):
    """Die here, if a test says so."""
    try:
        names = os.listdir(orders_of(path))
    except FileNotFoundError:
        return
    for name in names:
        wanted, _, passes = name.rpartition(".")
        if wanted != step:
            continue
        old = f"{orders_of(path)}/{name}"
        try:
            if int(passes):
                os.rename(old, f"{orders_of(path)}/{step}.{int(passes) - 1}")
                continue
            new = f"{orders_of(path)}/done {step} {time.time_ns()}"
            os.rename(old, new)
        except FileNotFoundError:
            continue  # another process was faster
        with open(new) as file:
            who = file.read()
        if who == "sleep":
            time.sleep(60)
        elif who == "raise":
            raise OSError("the test says so")
        elif who == "executor":
            with open(f"/proc/{os.getppid()}/stat") as stat:  # the daemon's parent
                os.kill(int(stat.read().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        elif who != "worker":
            os.kill(int(who), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class _Killed:
    def write(self, iterator):
        path = self._plan.path

        def rows():
            for batch in iterator:
                obey(path, "in task")
                yield batch

        staged = super().write(rows())
        obey(path, "after task")
        return staged

    def commit(self, messages, *batch):
        commits.reached = lambda step: obey(self._plan.path, step)
        super().commit(messages, *batch)
        obey(self._plan.path, "after commit")


class KilledBatchWriter(_Killed, BatchWriter):
    pass


class KilledStreamWriter(_Killed, StreamWriter):
    pass


class KilledSource(LogstoreSource):
    @classmethod
    def name(cls):
        return "killed"

    def writer(self, schema, overwrite):
        return KilledBatchWriter(Options(self.options, Use.BATCH_WRITE), schema, overwrite)

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return KilledStreamWriter(Options(self.options, Use.STREAM_WRITE), schema, overwrite)


def register(spark):
    """Make ``killed`` known, also to workers that cannot import the tests."""
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(KilledSource)
