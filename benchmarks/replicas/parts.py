"""All measurements, by part. Each part starts its clusters, one after the other, and gives lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.listening.client import Client
from benchmarks.listening.measuring import ACKS_ALL, SHAPES, Found, Line, Shape
from benchmarks.listening.servers import cpu_seconds, private_bytes, resident_bytes
from benchmarks.measure import bring_to_disk
from benchmarks.replicas import asking
from benchmarks.replicas.servers import NODES, Brokers, Cluster, OurNodes, go_on, pause

Report = Callable[[str], None]

PARTITIONS: Final = 3
"""Of a topic whose rate is measured: one for each node to lead."""
RATED: Final = (SHAPES[0], SHAPES[2])
SEND: Final = "send, acks=all"
CAUGHT_UP, BEFORE, MEANWHILE = "an empty disk", "one record before", "one record meanwhile"
LIMIT_BYTES: Final = 30_000_000
"""In a second, for a node that is not to disturb."""
SLOWLY, MEANWHILE_SLOWLY = "an empty disk, slowly", "one record meanwhile, slowly"
PER_SECOND: Final = 100
"""Records of a client that leaves the processor some rest."""
PACED = "an empty disk, beside a hundred records a second"
BEFORE_PACED, MEANWHILE_PACED = "a hundred a second, before", "a hundred a second, meanwhile"
_BLOCK: Final = bytes(2**20)


class _Way(NamedTuple):
    """To fill an empty disk, while a client writes."""

    case: str
    meanwhile: str
    before: str | None = None
    """None: as in another case."""
    per_second: int | None = None
    """Records of the client. None: as many as are acknowledged, one after the other."""
    limit_bytes: int | None = None
    """That the node may copy in a second."""


_WAYS: Final = (
    _Way(CAUGHT_UP, MEANWHILE, BEFORE),
    _Way(PACED, MEANWHILE_PACED, BEFORE_PACED, per_second=PER_SECOND),
    _Way(SLOWLY, MEANWHILE_SLOWLY, limit_bytes=LIMIT_BYTES),
)


class Sizes(NamedTuple):
    """How much of everything."""

    rounds: int
    warm_rounds: int
    """Of rates, in front of those: a JVM compiles what it does often."""
    seconds: float
    """Of one measurement of a rate."""
    most_bytes: int
    warm_seconds: float
    settle_seconds: float
    """Until a cluster that stood still is as before."""
    freed_seconds: float
    """Until a disk that was told of a gigabyte of removed files has dealt with it, which holds others up."""
    partitions: int
    """Of the topic whose leaders are replaced."""
    idle_seconds: float
    kept_bytes: int
    """That a node copies which has lost its disk."""
    latencies: int


FULL: Final = Sizes(4, 2, 2.0, 400_000_000, 5.0, 2.0, 4.0, 1_000, 20.0, 1_000_000_000, 1_000)
QUICK: Final = Sizes(1, 1, 0.1, 4_000_000, 0.1, 1.0, 0.0, 20, 1.0, 4_000_000, 20)


class Bench(NamedTuple):
    """What a part is given."""

    sizes: Sizes
    directory: Path
    """An empty one."""
    report: Report
    has_broker: bool

    def clusters(self) -> list[Callable[[], Cluster]]:
        """What makes each."""
        found: list[Callable[[], Cluster]] = [lambda: OurNodes(self.directory)]
        return [*found, lambda: Brokers(self.directory)] if self.has_broker else found


@contextmanager
def _started(bench: Bench, make: Callable[[], Cluster]) -> Iterator[Cluster]:
    cluster = make()
    bench.report(f"start {cluster.name}")
    try:
        cluster.start()
        asking.await_nodes(_all(cluster), NODES)
        yield cluster
    finally:
        cluster.stop()


def _all(cluster: Cluster, *, but: int = 0) -> str:
    return ",".join(address for number, address in cluster.addresses.items() if number != but)


def _sum(cluster: Cluster, of: Callable[[int], float]) -> float:
    return sum(of(pid) for pid in cluster.pids.values())


def _create(client: Client, cluster: Cluster, topic: str, partitions: int, replicas: int) -> None:
    client.do(
        "create_topic_there", _all(cluster), topic, partitions=partitions, settings={}, replicas=replicas
    )
    asking.await_topic(_all(cluster), topic, asking.in_sync(replicas))


def measure_rates(bench: Bench) -> Iterator[Line]:
    """Send, with one replica and with three: each case at one cluster and at once at the other, in turns. The
    one that is not measured stands still."""
    cases = [(shape, replicas) for shape in RATED for replicas in (1, NODES)]
    with ExitStack() as stack:
        client = stack.enter_context(Client())
        clusters = []
        for make in bench.clusters():
            clusters.append(stack.enter_context(_started(bench, make)))
            pause(clusters[-1])
        for number in range(1 - bench.sizes.warm_rounds, bench.sizes.rounds + 1):
            bench.report(f"rates, round {number}")
            for shape, replicas in cases:
                for cluster in clusters if number % 2 else reversed(clusters):
                    with _going_on(bench, cluster):
                        found = _send(bench, cluster, client, shape, replicas, is_warm=number > 0)
                    if number > 0:
                        case = case_of(SEND, shape, replicas)
                        yield {"part": "rates", "case": case, "server": cluster.name, "round": number} | found


@contextmanager
def _going_on(bench: Bench, cluster: Cluster) -> Iterator[None]:
    go_on(cluster)
    try:
        time.sleep(bench.sizes.settle_seconds)
        asking.await_nodes(_all(cluster), NODES)
        yield
    finally:
        pause(cluster)


def _send(
    bench: Bench, cluster: Cluster, client: Client, shape: Shape, replicas: int, *, is_warm: bool
) -> Found:
    topic = f"t-{RATED.index(shape)}-{replicas}"
    _create(client, cluster, topic, PARTITIONS, replicas)
    bring_to_disk()
    before = _sum(cluster, cpu_seconds)
    found = client.do(
        "librdkafka_produce",
        _all(cluster),
        topic,
        shape=shape.name,
        acks=ACKS_ALL,
        seconds=bench.sizes.seconds if is_warm else bench.sizes.warm_seconds,
        most=bench.sizes.most_bytes,
    )
    used = {
        "server_cpu_seconds": _sum(cluster, cpu_seconds) - before,
        "resident_bytes": _sum(cluster, resident_bytes),
        "private_bytes": _sum(cluster, private_bytes),
    }
    client.do("delete_topic", _all(cluster), topic)
    return found | used


def case_of(deed: str, shape: Shape, replicas: int) -> str:
    """What a line is called."""
    count = "1 replica" if replicas == 1 else f"{replicas} replicas"
    return f"{deed}, {shape.name}, {count}"


def measure_failover(bench: Bench) -> Iterator[Line]:
    """A node that leads a third of many partitions is killed; before that, what it costs to have them."""
    count = bench.sizes.partitions
    for make in bench.clusters():
        with _started(bench, make) as cluster, Client() as client:
            bench.report(f"fail-over, {cluster.name}: make {count} partitions")
            _create(client, cluster, "many", count, NODES)
            asking.write_everywhere(_all(cluster), "many", count)
            time.sleep(bench.sizes.idle_seconds / 2)  # what the records leave to do is not idleness
            before = _sum(cluster, cpu_seconds)
            time.sleep(bench.sizes.idle_seconds)
            used = (_sum(cluster, cpu_seconds) - before) / bench.sizes.idle_seconds / NODES
            named = {"part": "failover", "server": cluster.name, "round": 1}
            memory = _sum(cluster, resident_bytes) / NODES
            yield {**named, "case": "idle", "cpu_share": used, "resident_bytes": memory}
            whole = asking.write_everywhere(_all(cluster), "many", count)
            yield {**named, "case": "write everywhere", "seconds": whole}
            gone = NODES
            led = asking.leaders(_all(cluster), "many").count(gone)
            bench.report(f"fail-over, {cluster.name}: kill node {gone}, which leads {led}")
            left = _all(cluster, but=gone)
            started = time.perf_counter()
            cluster.kill(gone)
            asking.await_topic(left, "many", asking.led_by_others(gone))
            elected = time.perf_counter() - started
            asking.write_everywhere(left, "many", count)
            written = time.perf_counter() - started
            yield {
                **named,
                "case": "a node is killed",
                "led": led,
                "elected_seconds": elected,
                "written_seconds": written,
            }


def _disk_rate(directory: Path, wanted_bytes: int) -> float:
    """Bytes per second of a file that is written and flushed."""
    path = directory / "rate"
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(max(wanted_bytes // len(_BLOCK), 1)):
            file.write(_BLOCK)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    path.unlink()
    return max(wanted_bytes, len(_BLOCK)) / seconds


def measure_catching_up(bench: Bench) -> Iterator[Line]:
    """One of our nodes comes back with an empty disk, while a client writes one record after the other. It is
    in sync with their small topic at once, so they wait for three nodes, as they did before it was lost."""
    sizes = bench.sizes
    cluster = OurNodes(bench.directory)
    named = {"part": "catching up", "server": cluster.name}
    try:
        cluster.start()
        asking.await_nodes(_all(cluster), NODES)
        with Client() as client:
            _create(client, cluster, "one", 1, NODES)
            _create(client, cluster, "much", PARTITIONS, NODES)
            bench.report("catching up: fill")
            stored = asking.fill(_all(cluster), "much", sizes.kept_bytes)
            asking.latencies(_all(cluster), "one", lambda done: done >= sizes.latencies)
            leads = asking.leaders(_all(cluster), "one")[0]
            empty = next(number for number in cluster.addresses if number != leads)
            for number in range(1, sizes.rounds + 1):
                for way in _WAYS:
                    bench.report(f"catching up, round {number}: node {empty}, {way.case}")
                    others = _all(cluster, but=empty)
                    if way.before is not None:
                        before = asking.latencies(
                            others, "one", lambda done: done >= sizes.latencies, way.per_second
                        )
                        yield {**named, "case": way.before, "round": number, **_latency(before)}
                    cluster.lose(empty)
                    bring_to_disk()
                    disk = _disk_rate(bench.directory, sizes.kept_bytes)
                    bring_to_disk()
                    time.sleep(sizes.freed_seconds)
                    started = time.perf_counter()
                    cluster.start_one(empty, way.limit_bytes)
                    found, there_seconds, seconds = _until_in_sync(others, started, way.per_second)
                    yield {
                        **named,
                        "case": way.case,
                        "round": number,
                        "bytes": stored,
                        "there_seconds": there_seconds,
                        "seconds": seconds,
                        "disk_bytes_per_second": disk,
                    }
                    yield {**named, "case": way.meanwhile, "round": number, **_latency(found)}
    finally:
        cluster.stop()


def _until_in_sync(
    addresses: str, started: float, per_second: int | None
) -> tuple[list[float], float, float]:
    """Latencies until the node has everything; when the cluster knew of it again, and when it had
    everything."""
    import threading

    seconds: list[float] = []

    def watch() -> None:
        asking.await_nodes(addresses, NODES)
        seconds.append(time.perf_counter() - started)
        asking.await_topic(addresses, "much", asking.in_sync(NODES))
        seconds.append(time.perf_counter() - started)

    watching = threading.Thread(target=watch)
    watching.start()
    found = asking.latencies(addresses, "one", lambda _: not watching.is_alive(), per_second)
    there_seconds, whole_seconds = seconds
    return found, there_seconds, whole_seconds


def _latency(found: list[float]) -> Found:
    return {
        "count": len(found),
        "p50_seconds": asking.percentile(found, 0.5),
        "p99_seconds": asking.percentile(found, 0.99),
    }


PARTS: Final[dict[str, Callable[[Bench], Iterator[Line]]]] = {
    "rates": measure_rates,
    "failover": measure_failover,
    "catching up": measure_catching_up,
}
