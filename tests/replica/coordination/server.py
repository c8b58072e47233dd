"""A real ZooKeeper server for the tests: that of Apache Kafka 3.9's jars, on loopback."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.interop import kafka

VERSION = kafka.OLD
"""Of Kafka, the last with ZooKeeper."""
TICK_MS = 200
"""Sessions last two ticks at least."""
_START_TIMEOUT_S = 60
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def unavailable_reason() -> str | None:
    """Why there is no server here; None if there is one. Fetches the jars on the first call."""
    problem = kafka._java_problem()
    if problem is not None:
        return problem
    try:
        kafka.jars(VERSION)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"ZooKeeper could not be fetched: {error}"
    return None


class ZooKeeperServer:
    """One server; its state outlives it in ``home``."""

    def __init__(self, home: Path, *, longest_ms: int = 20 * TICK_MS, host: str = "127.0.0.1") -> None:
        """``longest_ms``: how long sessions may last."""
        self._host = host
        self.home = home
        self._longest_ms = longest_ms
        home.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind((host, 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        """Returns when it answers."""
        settings = self.home / "zoo.cfg"
        settings.write_text(
            f"dataDir={self.home}/data\nclientPort={self.port}\nclientPortAddress={self._host}\n"
            f"tickTime={TICK_MS}\nmaxSessionTimeout={self._longest_ms}\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
        )
        command = kafka.java_command(_MAIN, os.fspath(settings), level="WARN", classes=kafka.jars(VERSION))
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.kill)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.ask("ruok") == "imok":
                return
            time.sleep(0.05)
        raise RuntimeError(f"ZooKeeper did not start:\n{(self.home / 'server.log').read_text()[-4000:]}")

    def ask(self, word: str) -> str:
        """What it says to one of its four-letter words; nothing if it does not answer."""
        try:
            with socket.create_connection((self._host, self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
