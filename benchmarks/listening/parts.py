"""All measurements, by part. Each part starts its servers, and gives lines round by round."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.listening.client import Client
from benchmarks.listening.measuring import (
    ACKS_ALL,
    ACKS_ONE,
    BROKER,
    BROKER_FLUSHED,
    OURS,
    OURS_FLUSHED,
    SHAPES,
    SMALL_BATCHES,
    Found,
    Line,
    Shape,
    Sizes,
)
from benchmarks.listening.servers import (
    BrokerServer,
    OurServer,
    Server,
    cpu_seconds,
    private_bytes,
    resident_bytes,
)
from benchmarks.measure import bring_to_disk

Report = Callable[[str], None]

PRODUCE_ONE, PRODUCE_ALL, FETCH = "produce, acks=1", "produce, acks=all", "fetch"
SEND_ONE, SEND_ALL, RECEIVE = "send, acks=1", "send, acks=all", "receive"
COMPUTING: Final = (  # case, whether it computes, the switch interval
    ("alone", False, 5.0),
    ("beside a busy thread, 5 ms", True, 5.0),
    ("beside a busy thread, 0.5 ms", True, 0.5),
)
_KEPT: Final = "kept"


class Bench(NamedTuple):
    """What a part is given."""

    sizes: Sizes
    directory: Path
    """An empty one."""
    report: Report
    has_broker: bool

    def servers(self) -> list[Server]:
        """Not started."""
        ours: Server = OurServer(self.directory)
        return [ours, BrokerServer(self.directory)] if self.has_broker else [ours]

    def rounds(self) -> range:
        """Their numbers."""
        return range(1, self.sizes.rounds + 1)


@contextmanager
def started(bench: Bench) -> Iterator[tuple[Client, list[Server]]]:
    """The servers, running, and a client."""
    with ExitStack() as stack:
        servers = bench.servers()
        for server in servers:
            bench.report(f"start {server.name}")
            stack.callback(server.stop)
            server.start()
        yield stack.enter_context(Client()), servers


def in_turn(servers: Sequence[Server], number: int) -> list[Server]:
    """Another one is first in each round."""
    at = number % len(servers)
    return [*servers[at:], *servers[:at]]


def with_cpu(server: Server, measure: Callable[[], Found]) -> Found:
    """What was measured, what of the processor the server took for it, and its memory after it."""
    before = cpu_seconds(server.pid)
    found = measure()
    return found | {
        "server_cpu_seconds": max(cpu_seconds(server.pid) - before, 0.01),
        "resident_bytes": resident_bytes(server.pid),
        "private_bytes": private_bytes(server.pid),
    }


def case_of(deed: str, shape: Shape) -> str:
    """What a line is called."""
    return f"{deed}, {shape.name}"


def _case_and_acks(shapes: Sequence[Shape], one: str, every: str) -> list[tuple[Shape, str, int]]:
    return [(shape, deed, acks) for shape in shapes for deed, acks in ((one, ACKS_ONE), (every, ACKS_ALL))]


RATED: Final = [
    *_case_and_acks(SHAPES, PRODUCE_ONE, PRODUCE_ALL),
    (SMALL_BATCHES, PRODUCE_ONE, ACKS_ONE),
    *((shape, FETCH, 0) for shape in SHAPES),
]
SENT: Final = [*_case_and_acks(SHAPES, SEND_ONE, SEND_ALL), *((shape, RECEIVE, 0) for shape in SHAPES)]


class _Topics:
    """Names of topics, each made for one measurement, or kept for all that fetch."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, server: Server, *, is_flushed: bool = False) -> Iterator[str]:
        """An empty topic, gone at the end."""
        topic = f"t{next(self._numbers)}"
        settings = server.flushed_settings if is_flushed else server.topic_settings
        self._client.do("create_topic", server.address, topic, partitions=1, settings=settings)
        yield topic
        self._client.do("delete_topic", server.address, topic)

    def keep(self, server: Server, shape: Shape, most: int) -> str:
        """A topic with records."""
        topic = f"{_KEPT}-{SHAPES.index(shape)}"
        settings = server.topic_settings
        self._client.do("create_topic", server.address, topic, partitions=1, settings=settings)
        self._client.do("fill", server.address, topic, shape=shape.name, most=most)
        return topic


def _rates(
    bench: Bench, part: str, cases: Sequence[tuple[Shape, str, int]], produce: str, fetch: str
) -> Iterator[Line]:
    sizes = bench.sizes
    with started(bench) as (client, servers):
        topics = _Topics(client)

        def measure(server: Server, shape: Shape, acks: int, seconds: float) -> Found:
            how = {"shape": shape.name, "seconds": seconds}
            if not acks:
                topic = f"{_KEPT}-{SHAPES.index(shape)}"
                return with_cpu(server, lambda: client.do(fetch, server.address, topic, **how))
            with topics.fresh(server) as topic:
                bring_to_disk()
                how |= {"acks": acks, "most": sizes.most_bytes}
                return with_cpu(server, lambda: client.do(produce, server.address, topic, **how))

        for server in servers:
            bench.report(f"{part}: fill, and warm {server.name}")
            for shape in SHAPES:
                topics.keep(server, shape, sizes.kept_bytes)
            for shape, acks in ((SHAPES[0], ACKS_ONE), (SHAPES[1], ACKS_ONE), (SHAPES[0], 0)):
                measure(server, shape, acks, sizes.warm_seconds)
        for number in bench.rounds():
            bench.report(f"{part}, round {number}")
            for shape, deed, acks in cases:
                for server in in_turn(servers, number):
                    found = measure(server, shape, acks, sizes.seconds)
                    named = {"part": part, "case": case_of(deed, shape), "server": server.name}
                    yield {**named, "round": number, **found}


def measure_rates(bench: Bench) -> Iterator[Line]:
    """The raw client."""
    yield from _rates(bench, "rates", RATED, "produce", "fetch")


def measure_librdkafka(bench: Bench) -> Iterator[Line]:
    """The same through librdkafka."""
    yield from _rates(bench, "librdkafka", SENT, "librdkafka_produce", "librdkafka_consume")


def measure_flushed(bench: Bench) -> Iterator[Line]:
    """``acks=all`` that waits for the disk, beside the broker with its defaults, which does not, and beside
    one that does."""
    shape = SHAPES[0]
    with started(bench) as (client, servers):
        topics = _Topics(client)
        modes = [(OURS_FLUSHED, servers[0], True)]
        modes += [(BROKER, server, False) for server in servers[1:]]
        modes += [(BROKER_FLUSHED, server, True) for server in servers[1:]]

        def measure(server: Server, is_flushed: bool, seconds: float) -> Found:
            with topics.fresh(server, is_flushed=is_flushed) as topic:
                bring_to_disk()
                settings = {"acks": ACKS_ALL, "seconds": seconds, "most": bench.sizes.most_bytes}
                return with_cpu(
                    server, lambda: client.do("produce", server.address, topic, shape=shape.name, **settings)
                )

        for _, server, is_flushed in modes:
            measure(server, is_flushed, bench.sizes.warm_seconds / 2)
        for number in bench.rounds():
            bench.report(f"flushed, round {number}")
            at = number % len(modes)
            for name, server, is_flushed in modes[at:] + modes[:at]:
                found = measure(server, is_flushed, bench.sizes.seconds)
                case = case_of(PRODUCE_ALL, shape)
                yield {"part": "flushed", "case": case, "server": name, "round": number, **found}


def measure_first(bench: Bench) -> Iterator[Line]:
    """From the start of the process to the first answer, with an empty store that is there already."""
    servers = bench.servers()
    for server in servers:
        server.start()
        server.stop()
    for number in range(1, bench.sizes.starts + 1):
        bench.report(f"first, round {number}")
        for server in in_turn(servers, number):
            bring_to_disk()
            seconds = server.start()
            found = {"seconds": seconds, "cpu_seconds": cpu_seconds(server.pid)}
            server.stop()
            yield {"part": "first", "case": "first answer", "server": server.name, "round": number, **found}


def measure_latency(bench: Bench) -> Iterator[Line]:
    """One record at a time, by the raw client."""
    with started(bench) as (client, servers):
        topics = _Topics(client)
        counts = {"produces": bench.sizes.produces, "polls": bench.sizes.polls}
        for number in range(bench.sizes.rounds + 1):  # round 0 is to warm them
            bench.report(f"latency, round {number}")
            for server in in_turn(servers, number):
                with topics.fresh(server) as topic:
                    bring_to_disk()
                    found = client.do("latency", server.address, topic, **counts)
                if number:
                    named = {"part": "latency", "case": "one record", "server": server.name}
                    yield {**named, "round": number, **found}


def measure_connections(bench: Bench) -> Iterator[Line]:
    """What clients cost that are connected, and ask nothing."""
    with started(bench) as (client, servers):
        for server in servers:
            bench.report(f"connections: {server.name}")
            client.do("hold", server.address, count=10)  # what is there once for all
            before = resident_bytes(server.pid)
            client.do("hold", server.address, count=bench.sizes.connections)
            found = {
                "connections": bench.sizes.connections,
                "memory_bytes": max(resident_bytes(server.pid) - before, 0),
                "resident_bytes": resident_bytes(server.pid),
            }
            client.do("let_go", server.address)
            yield {"part": "connections", "case": "idle", "server": server.name, "round": 1, **found}


def measure_sessions(bench: Bench) -> Iterator[Line]:
    """A consumer of many partitions."""
    count = bench.sizes.partitions
    with started(bench) as (client, servers):
        for server in servers:
            bench.report(f"sessions: {count} partitions in {server.name}")
            client.do(
                "create_topic", server.address, "many", partitions=count, settings=server.topic_settings
            )
        for number in range(bench.sizes.rounds + 1):  # round 0 is to warm them
            bench.report(f"sessions, round {number}")
            seconds = bench.sizes.seconds if number else bench.sizes.warm_seconds
            for server in in_turn(servers, number):
                settings = {"partitions": count, "seconds": seconds}
                found = with_cpu(
                    server,
                    lambda each=server, how=settings: client.do(  # type: ignore[misc]
                        "session", each.address, "many", **how
                    ),
                )
                if number:
                    named = {"part": "sessions", "case": "incremental fetches", "server": server.name}
                    yield {**named, "round": number, **found}


def measure_busy(bench: Bench) -> Iterator[Line]:
    """Ours, in a process that computes."""
    shape = SHAPES[0]
    counts = {"produces": bench.sizes.produces // 5, "polls": bench.sizes.polls // 5}
    with ExitStack() as stack:
        client = stack.enter_context(Client())
        servers = {}
        for number, (case, computes, interval_ms) in enumerate(COMPUTING):
            server = servers[case] = OurServer(
                bench.directory / str(number), computes=computes, interval_ms=interval_ms
            )
            stack.callback(server.stop)
        topics = _Topics(client)
        for number in range(1, bench.sizes.starts + 1):
            bench.report(f"busy, round {number}")
            for case, server in servers.items():  # one after the other: a busy thread takes a core
                server.start()
                with topics.fresh(server) as topic:
                    settings = {"acks": ACKS_ONE, "seconds": bench.sizes.seconds}
                    most = {"most": bench.sizes.most_bytes, "shape": shape.name}
                    found = client.do("produce", server.address, topic, **settings, **most)
                with topics.fresh(server) as topic:
                    found |= client.do("latency", server.address, topic, **counts)
                server.stop()
                yield {"part": "busy", "case": case, "server": OURS, "round": number, **found}


PARTS: Final[dict[str, Callable[[Bench], Iterator[Line]]]] = {
    "first": measure_first,
    "rates": measure_rates,
    "librdkafka": measure_librdkafka,
    "flushed": measure_flushed,
    "latency": measure_latency,
    "connections": measure_connections,
    "sessions": measure_sessions,
    "busy": measure_busy,
}
