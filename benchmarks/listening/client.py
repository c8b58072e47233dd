"""The process in which clients are: it is told what to do, line by line, and answers with figures.

``python -m benchmarks.listening.client`` is not for people.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from time import process_time
from typing import Any, Final, Self

from benchmarks.listening import librdkafka, raw
from benchmarks.listening.frames import FrameConnection
from benchmarks.listening.measuring import Found
from benchmarks.measure import ROOT, MeasurementError


class Held:
    """Connections that stay."""

    def __init__(self) -> None:
        self._connections: list[FrameConnection] = []

    def hold(self, address: str, *, count: int) -> Found:
        """Make so many more."""
        self._connections += [raw.greet(address) for _ in range(count)]
        return {"held": len(self._connections)}

    def let_go(self, address: str) -> Found:
        """Hang up on all."""
        for each in self._connections:
            each.close()
        self._connections.clear()
        return {}


def _create_topic(address: str, topic: str, *, partitions: int, settings: dict[str, str]) -> Found:
    """A topic with settings, once it can be used."""
    librdkafka.create_topic(address, topic, partitions=partitions, settings=settings)
    return raw.await_partitions(address, topic, partitions=partitions)


_HELD: Final = Held()
DEEDS: Final[dict[str, Callable[..., Found]]] = {
    "create_topic": _create_topic,
    "create_topic_there": librdkafka.create_topic,
    "delete_topic": librdkafka.delete_topic,
    "fill": raw.fill,
    "produce": raw.measure_produce,
    "fetch": raw.measure_fetch,
    "latency": raw.measure_latency,
    "session": raw.measure_session,
    "hold": _HELD.hold,
    "let_go": _HELD.let_go,
    "librdkafka_produce": librdkafka.measure_produce,
    "librdkafka_consume": librdkafka.measure_consume,
}


class Client:
    """The other end of the process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.listening.client"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, deed: str, *arguments: str, **settings: Any) -> Found:
        """
        Raises:
            MeasurementError: it went wrong in the process.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([deed, arguments, settings]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        found = json.loads(answer) if answer else {"error": "the client's process has ended"}
        if "error" in found:
            raise MeasurementError(f"{deed} {arguments} {settings}:\n{found['error']}")
        return dict(found)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run() -> None:
    for line in sys.stdin:
        deed, arguments, settings = json.loads(line)
        used = process_time()
        try:
            found = DEEDS[deed](*arguments, **settings)
            found["client_cpu_seconds"] = process_time() - used
            print(json.dumps(found), flush=True)
        except Exception:
            print(json.dumps({"error": traceback.format_exc()}), flush=True)


if __name__ == "__main__":
    _run()
