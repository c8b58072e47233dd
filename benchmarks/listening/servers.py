"""The processes that serve: ours, and a broker of Kafka as it is delivered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.listening.frames import FrameConnection
from benchmarks.listening.measuring import BROKER, OURS
from benchmarks.listening.raw import greet
from benchmarks.measure import ROOT, MeasurementError

_PATIENCE_SECONDS: Final = 90.0

JVM_FLAGS: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What the broker's own start script sets."""
BROKER_SETTINGS: Final = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "background.threads": 10,
    "broker.heartbeat.interval.ms": 2_000,
    "broker.session.timeout.ms": 9_000,
    "log.cleaner.dedupe.buffer.size": 128 * 2**20,
    "log.retention.ms": 7 * 24 * 3_600_000,
}
"""The broker's defaults, where the one that the tests run differs from them."""


class Server(Protocol):
    """A process that serves."""

    name: str
    address: str

    @property
    def topic_settings(self) -> dict[str, str]:
        """With which ``acks=all`` does not wait for the disk."""
        ...

    @property
    def flushed_settings(self) -> dict[str, str]:
        """With which it does."""
        ...

    @property
    def pid(self) -> int:
        """Of the process."""
        ...

    def start(self) -> float:
        """Returns the seconds to the first answer."""
        ...

    def stop(self) -> None:
        """Cleanly."""
        ...


def _environment() -> dict[str, str]:
    """With bytecode on the disk, as an installed package has it: to compile all would take longer."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}


def await_answer(address: str) -> None:
    """Ask until there is an answer.

    Raises:
        MeasurementError: there is none.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    connection: FrameConnection | None = None
    while connection is None:
        try:
            connection = greet(address)
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline:
                raise MeasurementError(f"{address} does not answer: {error}") from error
            time.sleep(0.002)
    connection.close()


class OurServer:
    """``logstore serve``; or the process that serves and computes, with a switch interval."""

    name = OURS
    topic_settings: Final = {"acks.all.durable": "false", "file.delete.delay.ms": "0"}
    flushed_settings: Final = {"acks.all.durable": "true", "file.delete.delay.ms": "0"}

    def __init__(self, directory: Path, *, computes: bool | None = None, interval_ms: float = 5.0) -> None:
        self.address = ""
        store = str(directory / "store")
        self._command = [sys.executable, "-m", "logstore", "serve", store, "--listen", "127.0.0.1:0"]
        self._command += ["--json", "--quiet", "--set", "max.connections=2000"]  # more than idle ones
        if computes is not None:
            self._command = [sys.executable, "-m", "benchmarks.listening.busy", store]
            self._command += [str(int(computes)), str(interval_ms)]
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        started = time.perf_counter()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise MeasurementError(f"{' '.join(self._command)} did not start")
        self.address = str(json.loads(said)["address"]) if said.startswith("{") else said.strip()
        await_answer(self.address)
        return time.perf_counter() - started

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


class BrokerServer:
    """A broker of Kafka: one node, which is its own controller."""

    name = BROKER
    topic_settings: Final = {"file.delete.delay.ms": "0"}
    flushed_settings: Final = {"file.delete.delay.ms": "0", "flush.messages": "1"}

    def __init__(self, directory: Path) -> None:
        from tests.interop.kafka import KafkaBroker  # needs pytest, which the extra `bench` brings

        self._broker: Any = KafkaBroker(directory / "broker", config=BROKER_SETTINGS, jvm_flags=JVM_FLAGS)
        self.address = ""

    @property
    def pid(self) -> int:
        return int(self._broker.pid)

    def start(self) -> float:
        if not (self._broker.log_dir / "meta.properties").exists():
            self._broker.format()
        started = time.perf_counter()
        self._broker.start()
        self.address = self._broker.bootstrap
        await_answer(self.address)
        return time.perf_counter() - started

    def stop(self) -> None:
        self._broker.stop()


def why_no_broker() -> str | None:
    """Why no broker can be run here; None if it can."""
    try:
        from tests.interop.kafka import unavailable_reason
    except ImportError as error:
        return str(error)
    return unavailable_reason()


def cpu_seconds(pid: int) -> float:
    """Of the processor, that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def resident_bytes(pid: int) -> int:
    """The memory of a process; with the pages of files that it has mapped."""
    return _status_bytes(pid, "VmRSS")


def private_bytes(pid: int) -> int:
    """The same without pages of files, which the kernel may take back."""
    return _status_bytes(pid, "RssAnon")


def _status_bytes(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if found is None:
        raise MeasurementError(f"the system does not say {name} of process {pid}")
    return int(found[1]) * 1024
