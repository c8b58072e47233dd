"""Three nodes in a network that is cut and slow, on disks that fill, fail and lose what was not flushed, with
clocks that jump, beside a coordinator that is killed and stands still; prints figures. Runs in a namespace of
its own:

    unshare -n -m python -m tests.replica.node.cut_off files 20 1 /dev/shm/cut

With ``LOGSTORE_FIGURES`` (see :mod:`tests.figures`) it reports them, too.
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
from tests.figures import report
from tests.interop import kafka
from tests.replica.coordination import server
from tests.replica.node.cluster import eventually
from tests.replica.node.loads import Load
from tests.replica.node.machines import Clock, Disk, clock_library
from tests.replica.node.moves import draw_goal, move
from tests.replica.node.network import HUB, Network
from tests.replica.node.processes import Processes, wait_until_well
from tests.replica.node.trial import PARTITIONS, PLACES, TOPICS, try_out

NODE_IDS = (1, 2, 3)
MOST_JAVA = 200_000
KINDS = ("isolate", "cut one way", "cut both ways", "cut from hub", "slow", "full disk", "kill", "halt")
OF_ZOOKEEPER = ("kill coordinator", "halt coordinator")
OF_DISKS = ("power cut", "failing disk")
OF_CLOCKS = ("clock jump",)
MOST_JUMP_SECONDS = 86_400
"""Retention deletes what is older than a week."""


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

    def __init__(self, cluster, network, zookeeper, disks, clocks, seed):
        self._cluster = cluster
        self._network = network
        self._zookeeper = zookeeper
        self._disks = disks
        self._clocks = clocks
        self._rng = random.Random(f"cut off {seed}")
        self._kinds = (
            *KINDS,
            *(OF_ZOOKEEPER if zookeeper is not None else ()),
            *(OF_DISKS if disks[1].can_fail else ()),
            *(OF_CLOCKS if clocks is not None else ()),
        )
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

    def _power_cut(self, node_id):
        """Of one machine: while another one has not caught up, two would be too many."""
        self._wait_until_well()
        self._disks[node_id].fail()
        self._cluster.nodes[node_id].kill()
        return lambda: self._put_back(node_id)

    def _failing_disk(self, node_id):
        """The node finds out by itself."""
        self._wait_until_well()
        self._disks[node_id].fail()
        return lambda: self._put_back(node_id)

    def _put_back(self, node_id):
        node = self._cluster.nodes[node_id]
        if node.is_running:
            node.kill()
        self._disks[node_id].heal()
        node.start()
        self._wait_until_well()

    def _wait_until_well(self):
        for place in PLACES:
            eventually(lambda place=place: move(self._cluster, *place, NODE_IDS), 60)
        for topic in (*TOPICS, *(place[0] for place in PLACES if place[0].startswith("__"))):
            wait_until_well(self._cluster, topic, 1 if topic.startswith("__") else PARTITIONS)

    def _clock_jump(self, node_id):
        clock = self._clocks[node_id]
        clock.shift(self._rng.randint(-MOST_JUMP_SECONDS, MOST_JUMP_SECONDS))
        return lambda: clock.shift(self._rng.choice([0, self._rng.randint(-60, 60)]))


def run(path, coordinator, fault_count, seed):
    network = Network(NODE_IDS)
    disks = {node_id: Disk(path / f"disk-{node_id}") for node_id in NODE_IDS}
    library = clock_library(path)
    clocks = None
    if library is not None:
        clocks = {node_id: Clock(path / f"clock-{node_id}", library) for node_id in NODE_IDS}
    zookeeper = None
    place = os.fspath(path / "cluster")
    if coordinator == "zookeeper":
        zookeeper = server.ZooKeeperServer(path / "zookeeper", host=HUB)
        zookeeper.start()
        place = f"zookeeper://{zookeeper.address}/logstore"
    history = History()
    cluster = Processes(path, place, network=network, disks=disks, clocks=clocks)
    harm = Harm(cluster, network, zookeeper, disks, clocks, seed)

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


def main(kind, count, seed, where):
    started = time.monotonic()
    found = run(Path(where), kind, count, seed)
    print(json.dumps(found))
    faults = sorted(found["faults"].items(), key=lambda each: -each[1])
    report(
        f"faults of nodes, {kind}",
        count=count,
        failures=0,  # else it has ended with an error
        seconds=time.monotonic() - started,
        detail=f"{found['acknowledged']:,} records acknowledged, {found['of them by Java']:,} by Java; "
        f"{found['transactions']:,} transactions; {found['jobs']:,} jobs. "
        + ", ".join(f"{name} {times}" for name, times in faults),
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
