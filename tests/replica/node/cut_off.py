"""Three nodes in a network that is cut and slow, on disks that fill, beside a coordinator that is killed and
stands still; prints figures. Runs in a namespace of its own:

    unshare -n -m python -m tests.replica.node.cut_off files 20 1 /dev/shm/cut
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from logstore.testing import History
from tests.interop import kafka
from tests.replica.coordination import server
from tests.replica.node.loads import Load
from tests.replica.node.moves import draw_goal, move
from tests.replica.node.network import HUB, Network
from tests.replica.node.processes import Processes
from tests.replica.node.trial import PLACES, try_out

DISK_BYTES = 384 * 1024 * 1024
NODE_IDS = (1, 2, 3)
MOST_JAVA = 200_000
KINDS = ("isolate", "cut one way", "cut both ways", "cut from hub", "slow", "full disk", "kill", "halt")
OF_ZOOKEEPER = ("kill coordinator", "halt coordinator")


class JavaRecords(Load):
    """Kafka's own producer: numbers, as fast as a thousand a second."""

    def __init__(self, addresses, history):
        self._history = history
        self._process = None
        self.count = 0
        if kafka.unavailable_reason(kafka.NEWEST) is not None:
            super().__init__()
            return
        for number in range(MOST_JAVA):
            history.sent("java", b"%d" % number)
        options = ("--topic", "t", "--acks", "-1", "--throughput", "1000", "--max-messages", str(MOST_JAVA))
        command = kafka.java_command(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", ",".join(addresses), *options),
            classes=kafka.tool_jars(),
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        super().__init__(self._listen)

    def _listen(self):
        for line in self._process.stdout:
            said = json.loads(line)
            if said.get("name") == "producer_send_success":
                self.count += 1
                self._history.acknowledged(said["value"].encode(), said["partition"], said["offset"])

    def stop(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
        super().stop()


class Harm:
    """Faults, one at a time."""

    def __init__(self, cluster, network, zookeeper, seed):
        self._cluster = cluster
        self._network = network
        self._zookeeper = zookeeper
        self._rng = random.Random(f"cut off {seed}")
        self._kinds = KINDS if zookeeper is None else (*KINDS, *OF_ZOOKEEPER)
        self.counts = {}

    def inject(self):
        rng = self._rng
        if rng.random() < 0.3:
            self._note("move", move(self._cluster, *rng.choice(PLACES), draw_goal(rng, NODE_IDS)))
        kind, node_id = rng.choice(self._kinds), rng.choice(NODE_IDS)
        self._note(kind)
        end = getattr(self, "_" + kind.replace(" ", "_"))(node_id)
        time.sleep(rng.choice([rng.uniform(0.2, 1.5), rng.uniform(2.5, 4)]))
        end()
        self._restart_those_that_have_ended()
        time.sleep(rng.uniform(0.2, 1.5))

    def _note(self, kind, count=1):
        self.counts[kind] = self.counts.get(kind, 0) + count

    def _restart_those_that_have_ended(self):
        """A node whose disk fails ends."""
        for node in self._cluster.nodes.values():
            if not node.is_running:
                self._note("ended by itself")
                node.start()

    def _isolate(self, node_id):
        self._network.isolate(node_id)
        return self._network.heal

    def _cut_one_way(self, node_id):
        self._network.cut(node_id, self._rng.choice([each for each in NODE_IDS if each != node_id]))
        return self._network.heal

    def _cut_both_ways(self, node_id):
        other = self._rng.choice([each for each in NODE_IDS if each != node_id])
        self._network.cut(node_id, other)
        self._network.cut(other, node_id)
        return self._network.heal

    def _cut_from_hub(self, node_id):
        self._network.cut_from_hub(node_id)
        return self._network.heal

    def _slow(self, node_id):
        self._network.slow(node_id)
        return self._network.heal

    def _full_disk(self, node_id):
        ballast = self._cluster.nodes[node_id].directory.parent / "ballast"
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], check=False, capture_output=True)
        return ballast.unlink

    def _kill(self, node_id):
        node = self._cluster.nodes[node_id]
        node.kill()
        return node.start

    def _halt(self, node_id):
        node = self._cluster.nodes[node_id]
        node.signal(signal.SIGSTOP)
        return lambda: node.signal(signal.SIGCONT)

    def _kill_coordinator(self, node_id):
        self._zookeeper.kill()
        return self._zookeeper.start

    def _halt_coordinator(self, node_id):
        self._zookeeper.pause()
        return self._zookeeper.resume


def mount_disks(path):
    """A small one for each node: its directory is in it."""
    for node_id in NODE_IDS:
        disk = path / f"disk-{node_id}"
        disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", os.fspath(disk)], check=True
        )


def run(path, coordinator, fault_count, seed):
    network = Network(NODE_IDS)
    mount_disks(path)
    zookeeper = None
    place = os.fspath(path / "cluster")
    if coordinator == "zookeeper":
        zookeeper = server.ZooKeeperServer(path / "zookeeper", host=HUB)
        zookeeper.start()
        place = f"zookeeper://{zookeeper.address}/logstore"
    history = History()
    cluster = Processes(path, place, network=network)
    harm = Harm(cluster, network, zookeeper, seed)

    def inject_all():
        try:
            for _ in range(fault_count):
                harm.inject()
        finally:
            network.heal()

    java: list[JavaRecords] = []

    def by_java(addresses, history):
        java.append(JavaRecords(addresses, history))
        return java[0]

    counts = try_out(cluster, history, seed, inject_all, least=20 * fault_count, more_loads=[by_java])
    return {
        "acknowledged": history.acknowledged_count,
        "of them by Java": java[0].count,
        **counts,
        "faults": harm.counts,
    }


if __name__ == "__main__":
    kind, count, seed, where = sys.argv[1:]
    print(json.dumps(run(Path(where), kind, int(count), int(seed))))
