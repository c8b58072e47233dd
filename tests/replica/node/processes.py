"""Nodes as processes of their own, as ``logstore serve --config`` runs them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import logstore
from logstore.model import Isolation
from tests.replica.node.cluster import eventually
from tests.replica.node.network import address_of

SESSION_MS = 2_000
PORT = 9092


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class NodeProcess:
    """One node, that may be killed, stopped and started again."""

    def __init__(self, path, node_id, coordinator, settings, network=None, disk=None, variables=None):
        """``disk``: where its directory is; ``variables``: more of its environment."""
        self.node_id = node_id
        self.directory = (disk or path) / f"node-{node_id}"
        self._environment = {**os.environ, **(variables or {})}
        if network is None:
            self._endpoint = ("127.0.0.1", free_port())
            self._within = ()
        else:
            self._endpoint = (address_of(node_id), PORT)
            self._within = network.within(node_id)
        self.address = "{}:{}".format(*self._endpoint)
        self._file = path / f"node-{node_id}.toml"
        self._output = path / f"node-{node_id}.txt"
        lines = [f'"{name}" = "{value}"' for name, value in settings.items()]
        self._file.write_text(
            f'directory = "{self.directory}"\nnode_id = {node_id}\ncoordinator = "{coordinator}"\n'
            f'allow_anonymous = true\nlistener = "{self.address}"\nsession_ms = {SESSION_MS}\n'
            "replica_lag_time_max_ms = 1500\n[settings]\n" + "\n".join(lines)
        )
        self._process = None

    def start(self):
        """It may need a while until another process of the node is taken for dead."""

        def is_up():
            if self._process is None or self._process.poll() is not None:
                with open(self._output, "ab") as output:
                    self._process = subprocess.Popen(
                        [
                            *self._within,
                            sys.executable,
                            "-m",
                            "logstore",
                            "serve",
                            "--config",
                            str(self._file),
                        ],
                        stdout=output,
                        stderr=output,
                        env=self._environment,
                    )
            with socket.socket() as sock:
                sock.settimeout(1)
                return sock.connect_ex(self._endpoint) == 0

        eventually(is_up, 60)

    @property
    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def signal(self, number):
        os.kill(self._process.pid, number)

    def kill(self):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            self._process.wait(30)

    @property
    def output(self):
        return self._output.read_text()


class Processes:
    """Three of them, coordinated through files, or as ``coordinator`` says; in a network of their own if
    there is one, on disks and with clocks of their own if there are some."""

    def __init__(self, path, coordinator="cluster", settings=None, network=None, disks=None, clocks=None):
        wanted = {"min.insync.replicas": "2", **(settings or {})}
        self.nodes = {
            node_id: NodeProcess(
                path,
                node_id,
                coordinator,
                wanted,
                network,
                disks and disks[node_id].path,
                clocks and clocks[node_id].variables,
            )
            for node_id in (1, 2, 3)
        }
        for node in self.nodes.values():
            node.start()

    @property
    def addresses(self):
        return [node.address for node in self.nodes.values()]

    def logs(self, topic, partitions):
        """What each node has, once all are stopped: the records of each partition, and the raw bytes below
        the lowest high watermark."""
        found = {}
        for node_id, node in self.nodes.items():
            with logstore.open(node.directory, read_only=True) as store:
                for number in range(partitions):
                    log = store[topic][number]
                    records = [(each.offset, each.value) for each in log.read(isolation=Isolation.LOG_END)]
                    data = log.fetch(log.log_start_offset, max_bytes=2**30, isolation=Isolation.LOG_END).data
                    found[node_id, number] = records, bytes(data)
        return found

    def close(self):
        for node in self.nodes.values():
            if node.is_running:
                node.kill()


def wait_until_well(cluster, topic, partitions):
    """All replicas are in sync, as all nodes say."""

    def is_well():
        for node in cluster.nodes.values():
            with logstore.connect(node.address) as remote:
                found = remote.broker.metadata(_of(topic))
                deadline = time.monotonic() + 5
                while (result := found.poll()) is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                parts = result.topics[0].partitions if result and result.topics else ()
                if len(parts) != partitions or any(len(each.isr_ids) < 3 for each in parts):
                    return False
        return True

    eventually(is_well, 60)


def _of(topic):
    from logstore.broker.requests import MetadataRequest

    return MetadataRequest((topic,))
