"""The data source ``killed``: it writes like ``logstore``, and processes die on the way where a test orders
it.

A test puts orders into a directory beside the store, one file each: ``<step>.<passes before>.<who>``. ``who``
is ``worker``, ``executor``, or the id of another process to kill; ``raise`` and ``loser`` kill none. A
process renames an order before carrying it out, so each is carried out once, and a test can count them.
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
    """Let a process die when it reaches a step, after ``passes`` processes have passed it."""
    os.makedirs(orders_of(path), exist_ok=True)
    with open(f"{orders_of(path)}/{step}.{passes}.{who}", "x"):
        pass


def obeyed(path):
    """The orders that were carried out."""
    return sorted(name for name in os.listdir(orders_of(path)) if name.startswith("done "))


def obey(path, step):
    """Die here if a test orders it; True after an order that kills no process."""
    try:
        names = os.listdir(orders_of(path))
    except FileNotFoundError:
        return False
    for name in names:
        wanted, _, rest = name.partition(".")
        if wanted == step:
            passes, _, who = rest.partition(".")
            new = f"{step}.{int(passes) - 1}.{who}" if int(passes) else f"done {step} {who} {time.time_ns()}"
            try:
                os.rename(f"{orders_of(path)}/{name}", f"{orders_of(path)}/{new}")
            except FileNotFoundError:
                continue  # another process was faster
            if not int(passes):
                _die(who)
                return True
    return False


def _die(who):
    if who == "raise":
        raise OSError("the test says so")
    if who == "loser":
        return
    if who == "executor":
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

        if obey(path, "second attempt"):  # a speculative one, which is done too late
            batches = list(iterator)
            super().write(iter(batches))
            iterator = iter(batches)
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
