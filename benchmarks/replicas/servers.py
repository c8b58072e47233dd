"""Two clusters of three processes: ours, and brokers of Kafka as they are delivered."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.listening.measuring import BROKER, OURS
from benchmarks.listening.servers import BROKER_SETTINGS, JVM_FLAGS, await_answer
from benchmarks.measure import ROOT, MeasurementError

NODES: Final = 3
_STOP_SECONDS: Final = 60


class Cluster(Protocol):
    """Three processes, by their numbers from 1 on."""

    name: str

    def start(self) -> None:
        """All of them."""
        ...

    @property
    def addresses(self) -> dict[int, str]:
        """Where each listens."""
        ...

    @property
    def pids(self) -> dict[int, int]:
        """Of those that run."""
        ...

    def kill(self, node_id: int) -> None:
        """As a crash does."""
        ...

    def stop(self) -> None:
        """All of them, cleanly."""
        ...


def pause(cluster: Cluster) -> None:
    """Let it stand still: it takes nothing of the processor."""
    for pid in cluster.pids.values():
        os.kill(pid, signal.SIGSTOP)


def go_on(cluster: Cluster) -> None:
    """After :func:`pause`. Its nodes may take each other for gone at first."""
    for pid in cluster.pids.values():
        os.kill(pid, signal.SIGCONT)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class OurNodes:
    """``logstore serve --config``, coordinated through files."""

    name = OURS

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "nodes"
        self._directory.mkdir()
        self.addresses = {number: f"127.0.0.1:{_free_port()}" for number in range(1, NODES + 1)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in self.addresses:
            self._describe(number, None)

    def _describe(self, node_id: int, catch_up_bytes: int | None) -> None:
        limit = "" if catch_up_bytes is None else f"follower_replication_throttled_rate = {catch_up_bytes}\n"
        (self._directory / f"{node_id}.toml").write_text(
            f'directory = "node-{node_id}"\nnode_id = {node_id}\ncoordinator = "cluster"\n{limit}'
            f'listener = "{self.addresses[node_id]}"\n[settings]\n"min.insync.replicas" = 2\n'
        )

    @property
    def pids(self) -> dict[int, int]:
        return {number: each.pid for number, each in self._processes.items()}

    def start(self) -> None:
        for number in self.addresses:
            self.start_one(number)
        for address in self.addresses.values():
            await_answer(address)

    def start_one(self, node_id: int, catch_up_bytes: int | None = None) -> None:
        """Does not wait. ``catch_up_bytes``: how many it may copy in a second until it is in sync."""
        self._describe(node_id, catch_up_bytes)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._processes[node_id] = subprocess.Popen(
            [sys.executable, "-m", "logstore", "serve", "--config", str(self._directory / f"{node_id}.toml")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")},
        )

    def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def lose(self, node_id: int) -> None:
        """Stop a node, and remove its disk."""
        process = self._processes.pop(node_id)
        process.terminate()
        process.wait(_STOP_SECONDS)
        shutil.rmtree(self._directory / f"node-{node_id}")

    def stop(self) -> None:
        for number in list(self._processes):
            self.kill(number)


class Brokers:
    """Of Kafka: the first is the controller, too."""

    name = BROKER

    def __init__(self, directory: Path) -> None:
        from tests.interop.kafka import KafkaBroker  # needs pytest, which the extra `bench` brings

        settings = {
            **BROKER_SETTINGS,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": NODES,
            "transaction.state.log.replication.factor": NODES,
        }
        first = KafkaBroker(directory / "broker-1", config=settings, jvm_flags=JVM_FLAGS)
        self._brokers: dict[int, Any] = {1: first}
        for number in range(2, NODES + 1):
            home = directory / f"broker-{number}"
            self._brokers[number] = KafkaBroker(
                home, config=settings, jvm_flags=JVM_FLAGS, node_id=number, joins=first
            )

    @property
    def addresses(self) -> dict[int, str]:
        return {number: str(each.bootstrap) for number, each in self._brokers.items()}

    @property
    def pids(self) -> dict[int, int]:
        return {number: int(each.pid) for number, each in self._brokers.items() if each.is_running}

    def start(self) -> None:
        for each in self._brokers.values():
            each.start()

    def kill(self, node_id: int) -> None:
        if node_id == 1:
            raise MeasurementError("the first broker is the only controller")
        self._brokers[node_id].kill()

    def stop(self) -> None:
        for each in reversed(self._brokers.values()):
            each.kill()
