"""The little language of these tests: run commands, here or as programs of their own, and make stores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import NamedTuple

from typer.testing import CliRunner

import logstore
from logstore.cli.app import app
from logstore.config import StoreConfig, TopicConfig
from logstore.model import NewRecord

PROGRAM = [sys.executable, "-m", "logstore"]
TIME_MS = 1_700_000_000_000
QUIET = StoreConfig(log_cleaner_enable=False)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self):
        """The JSON objects that were written."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self):
        return self.out.splitlines()


def run(*arguments):
    """A command, in this process."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    return Done(result.exit_code, result.stdout, result.stderr)


def answer(*arguments):
    """What a command that ends well has written."""
    done = run(*arguments)
    assert done.code == 0, done
    return done


def program(*arguments, **options):
    """A command, as a program of its own."""
    done = subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, timeout=60, **options)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def start(*arguments, **options):
    """A program that goes on."""
    environment = os.environ | options.pop("env", {})
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=_take_interrupts,
        **options,
    )


def _take_interrupts():
    """Of a run in the background of a shell, or under ``nohup``, children ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def numbered(count, start=0):
    return [
        NewRecord(b"value %d" % n, b"key %d" % (n % 3), timestamp_ms=TIME_MS + n * 1000)
        for n in range(start, start + count)
    ]


def make_store(path, count=20, partitions=2, **settings):
    """A store with a topic ``orders``, of records a second apart."""
    config = TopicConfig(**({"segment_bytes": 400} | settings))
    with logstore.open(path, config=QUIET) as store:
        topic = store.create_topic("orders", partitions=partitions, config=config)
        for number, log in enumerate(topic):
            for record in numbered(count, 1000 * number):
                log.extend([record])
    return path


def read(path, topic="orders", **options):
    """(partition, record) of a topic, as the library reads them."""
    with logstore.open(path, read_only=True) as store:
        options = {"order": "partition"} | options
        return [(record.partition, record) for record in store[topic].read(**options)]
