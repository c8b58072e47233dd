"""Three nodes, of which the one that leads is killed under load: everything that was acknowledged is there.

Each node is a process with a directory of its own; a fourth directory has what they know in common. Clients
are Kafka's or, as here, this library. Run: python examples/three_nodes.py
"""

import signal
import subprocess
import sys
import tempfile
import time

import logstore
from logstore import replica


def be_node(path: str, number: int) -> None:
    store, common = logstore.open(f"{path}/node-{number}"), replica.FileCoordinator(f"{path}/cluster")
    with store, replica.Node(store, number, coordinator=common) as node:
        print(node.address, flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        time.sleep(3600)


if __name__ == "__main__" and len(sys.argv) == 3:
    be_node(sys.argv[1], int(sys.argv[2]))
elif __name__ == "__main__":
    found: list[tuple[int, bytes | None]] = []
    with tempfile.TemporaryDirectory() as path:
        run = [sys.executable, __file__, path]
        nodes = [subprocess.Popen([*run, each], stdout=subprocess.PIPE, text=True) for each in "123"]
        addresses = [node.stdout.readline().strip() for node in nodes if node.stdout]
        with logstore.connect(*addresses) as cluster:
            cluster.create_topic("orders", config=logstore.TopicConfig(min_insync_replicas=2))
            with cluster.producer(acks="all") as producer:
                sent = [producer.send("orders", b"order %d" % number) for number in range(5_000)]
                sent[0].result()
                leaders = cluster.leaders("orders")
                nodes[leaders[0] - 1].kill()
                sent += [producer.send("orders", b"order %d" % number) for number in range(5_000, 10_000)]
            assert [each.result().offset for each in sent] == [*range(10_000)]  # acknowledged
            print(f"the leader was killed, and another leads: {cluster.leaders('orders') != leaders}")
            with cluster.consumer("orders", auto_offset_reset="earliest") as consumer:
                while len(found) < len(sent):
                    found += [(record.offset, record.value) for record in consumer.poll()]
        is_whole = found == [(number, b"order %d" % number) for number in range(10_000)]
        print(f"all that was acknowledged is there, once and in order: {is_whole}")
        for node in nodes:
            node.terminate()
            node.wait()
