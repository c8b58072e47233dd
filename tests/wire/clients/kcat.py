"""kcat, a program for the shell, which is librdkafka inside. Each task is a call or two."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

from tests.wire.clients.features import TAKES_SECONDS

PROGRAM = "kcat"
LACKS = {"group-sticky"}  # as librdkafka


def version():
    shown = subprocess.run([PROGRAM, "-V"], capture_output=True, text=True, check=True).stdout
    return re.search(r"Version (\S+)", shown)[1]


def settings(task, security=None, **more):
    security = security or task.options.get("security", {"protocol": "PLAINTEXT"})
    found = {"client.id": task.name, "security.protocol": security["protocol"]}
    if "ca" in security:
        found["ssl.ca.location"] = security["ca"]
    if "mechanism" in security:
        found |= {
            "sasl.mechanism": security["mechanism"],
            "sasl.username": security["user"],
            "sasl.password": security["password"],
        }
    found |= {name.replace("_", "."): value for name, value in more.items()}
    return ["-b", task.bootstrap, *(word for each in found.items() for word in ("-X", "=".join(each)))]


def call(*words, values=(), check=True):
    """Run it to its end."""
    done = subprocess.run(
        [PROGRAM, *words],
        input="".join(f"{value}\n" for value in values),
        capture_output=True,
        text=True,
        timeout=TAKES_SECONDS,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def produce(task):
    options = task.options
    more = {
        "acks": options["acks"],
        "enable_idempotence": "true" if options.get("idempotent") else "false",
        "linger_ms": "100",
    }
    codec = ["-z", options["codec"]] if "codec" in options else []
    call("-P", "-t", task.topic, "-p", "0", *codec, *settings(task, **more), values=task.values)


def assign(task):
    isolation = task.options.get("isolation", "read_uncommitted")
    words = ["-C", "-t", task.topic, "-o", "beginning", "-e", "-q"]
    return {"values": call(*words, *settings(task, isolation_level=isolation)).stdout.splitlines()}


def times(task):
    def at(place):
        shown = call("-Q", "-t", f"{task.topic}:3:{place}", *settings(task)).stdout
        return int(re.search(r"offset (-?\d+)", shown)[1])

    options = task.options
    return {
        "offset": at(options["time_ms"]),
        "after_all": at(options["later_ms"]),
        "begin": at("-2"),
        "end": at("-1"),
    }


class Member:
    """A process in a group. What it prints goes into files."""

    def __init__(self, task, home, **more):
        more |= {"auto_offset_reset": "earliest", "heartbeat_interval_ms": "100", "fetch_wait_max_ms": "50"}
        self._out, self._err = home / "out", home / "err"
        with self._out.open("w") as out, self._err.open("w") as err:
            command = [PROGRAM, "-u", *settings(task, **more), "-G", task.group, task.topic]
            self._process = subprocess.Popen(command, stdout=out, stderr=err)

    @property
    def values(self):
        return self._out.read_text().splitlines()

    @property
    def share(self):
        """The number of partitions that it has."""
        return share_in(self._err.read_text())

    def close(self):
        """It commits then."""
        self._process.terminate()
        self._process.wait(TAKES_SECONDS)


def share_in(text):
    """Of what kcat says of its group: what it was assigned, less what was taken from it."""
    share = 0
    for line in text.splitlines():
        if " rebalanced" in line:
            count = len(re.findall(r"\[\d+\]", line))
            share += count if "assign" in line else -count
    return share


def until(condition):
    deadline = time.monotonic() + TAKES_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def share(task):
    with tempfile.TemporaryDirectory() as home:
        homes = [Path(home, str(number)) for number in range(2)]
        for each in homes:
            each.mkdir()
        strategy = {"partition_assignment_strategy": task.options["assignor"]}
        members = [Member(task, each, **strategy) for each in homes]
        try:
            until(lambda: [each.share for each in members] == [2, 2])
            until(lambda: len({value for each in members for value in each.values}) == len(task.values))
            shares = [each.share for each in members]
        finally:
            for each in members:
                each.close()
        return {"values": [value for each in members for value in each.values], "shares": shares}


def come_back(task):
    values, assigned = [], 0
    for count in ("12", "8"):
        more = {"group_instance_id": task.options["instance"], "auto_offset_reset": "earliest"}
        done = call("-c", count, *settings(task, **more), "-G", task.group, task.topic)
        values += done.stdout.splitlines()
        assigned = len(re.findall(r"\[\d+\]", re.search(r" assigned: (.*)", done.stderr)[1]))
    return {"values": values, "assigned": assigned}


def secure(task):
    call("-P", "-t", task.topic, "-p", "0", *settings(task), values=task.values)
    found = call("-C", "-t", task.topic, "-o", "beginning", "-e", "-q", *settings(task)).stdout.splitlines()
    stranger = settings(task, task.options["wrong"], message_timeout_ms="500")
    done = call("-P", "-t", task.topic, "-p", "0", *stranger, values=["never"], check=False)
    return {"values": found, "is_refused": done.returncode != 0}
