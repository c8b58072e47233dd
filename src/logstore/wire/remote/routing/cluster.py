"""What is known of a cluster: its brokers, and who leads each partition.

A topic is asked for when it is first needed, when an answer has said that what is known is wrong, and when it
is old. Those who need topics wait in one line, and go on in their order: requests that are written to a
partition do not overtake each other here.

Lock: ``_lock`` guards the tables and the line. Nothing is called with it held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.format.messages.fields import NO_UUID
from logstore.model import TopicPartition
from logstore.wire.addresses import Address
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster.metadata import MetadataRequest, MetadataResponse, TopicWanted
from logstore.wire.remote.connections.codes import code_of_number
from logstore.wire.remote.connections.nodes import Dialer, Lane, Node
from logstore.wire.remote.connections.questions import Reply
from logstore.wire.remote.routing.attempt import Attempt, Target

_CONTROLLER_SECONDS: Final = 1.0
"""For so long a controller is taken for the one that it was."""
_FIRST_VERSION: Final = 4
"""Before it a question for a topic creates it."""


class Leader(NamedTuple):
    """Who leads a partition; or why that is not known."""

    node: Node | None
    epoch: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID | None = None
    """Of the topic, if it has one: older brokers have none."""


class _Topic(NamedTuple):
    leaders: Mapping[int, tuple[int, int]]
    """Partition -> node id and leader epoch."""
    error: ErrorCode
    at: float
    message: str | None
    topic_id: UUID | None
    found: dict[int, Leader]
    """The same for those who ask, as far as it was asked for: with each fetch, of a thousand partitions."""


class _InLine(NamedTuple):
    names: frozenset[str]
    go_on: Callable[[], object]


class Cluster:
    """Of one client."""

    def __init__(self, dialer: Dialer, bootstrap: Sequence[Address]) -> None:
        self.dialer = dialer
        self.config = dialer.config
        self._lock = threading.Lock()
        self._bootstrap = [Node(dialer, each) for each in bootstrap]
        self._nodes: dict[int, Node] = {}
        self._controller_id = -1
        self._turn = 0
        self._topics: dict[str, _Topic] = {}
        self._stale: set[str] = set()
        self._line: deque[_InLine] = deque()
        self._is_asking = False
        self._asked_at = -1e9
        self._learned_at = -1e9
        """When a broker has last said which others there are."""
        self._is_closed = False
        self._farewell_count = 0

    # Brokers

    def nodes(self) -> list[Node]:
        """The brokers of the cluster; those that were named, until they are known."""
        with self._lock:
            return list(self._nodes.values()) or list(self._bootstrap)

    def node(self, node_id: int) -> Node | None:
        """A broker by its id."""
        with self._lock:
            return self._nodes.get(node_id)

    def node_at(self, node_id: int, host: str, port: int) -> Node:
        """A broker by its id, which listens there."""
        with self._lock:
            return self._node_at_locked(node_id, Address(host, port))

    def _node_at_locked(self, node_id: int, address: Address, *, is_alone: bool = False) -> Node:
        """``is_alone``: the cluster has no other. Then a socket of this machine leads to it, whatever it says
        of ports."""
        known = self._nodes.get(node_id)
        if known is not None and (known.address == address or known.address.path):
            return known
        node = next((each for each in self._bootstrap if each.address == address), None)
        if node is None and is_alone:
            node = next((each for each in self._bootstrap if each.address.path), None)
        if node is None:
            node = Node(self.dialer, address)
        if known is not None and known is not node and known not in self._bootstrap:
            known.close()
        self._nodes[node_id] = node
        self._forget_found_locked()
        return node

    def _forget_found_locked(self) -> None:
        """Brokers have changed."""
        for topic in self._topics.values():
            topic.found.clear()

    def choice(self) -> list[Node]:
        """The brokers that can be asked what any of them knows: also those that were named."""
        with self._lock:
            known = list(self._nodes.values())
            return known + [each for each in self._bootstrap if each not in known]

    def any_node(self, *, but: Container[Node] = ()) -> Node:
        """A broker that can be asked: in turns, those that are connected before others, and of these those
        before others that did not fail last time. ``but``: others than these, if there are any."""
        choice = self.choice()
        with self._lock:
            self._turn += 1
            turned = [choice[(self._turn + at) % len(choice)] for at in range(len(choice))]
        return min(turned, key=lambda each: (each in but, not each.is_connected, each.has_failed))

    def controller(self) -> Node:
        """The broker that changes topics; any, if it is not known."""
        with self._lock:
            node = self._nodes.get(self._controller_id)
        return node if node is not None and node.is_connected else self.any_node()

    def when_controller_known(self, then: Callable[[Node], object], *, is_wrong: bool) -> None:
        """Call ``then`` with the broker that changes topics. Requests to it are rare: unless it was told just
        now, it is looked up, and with it where the others are. ``is_wrong``: the one that is known was not
        it."""
        with self._lock:
            age_seconds = time.monotonic() - self._learned_at
            is_known = bool(self._nodes) and not is_wrong and age_seconds < _CONTROLLER_SECONDS
            if not is_known:
                self._line.append(_InLine(frozenset(), lambda: then(self.controller())))
        if is_known:
            then(self.controller())
        else:
            self._ask_if_needed()

    # Leaders

    def when_known(
        self, partitions: Iterable[TopicPartition], then: Callable[[dict[TopicPartition, Leader]], object]
    ) -> None:
        """Call ``then`` with the leaders of the partitions: at once, or when they were looked up."""
        wanted = tuple(partitions)
        names = frozenset(each.topic for each in wanted)
        with self._lock:
            is_known = not self._line and self._knows_locked(names)
            if is_known:
                found = self._leaders_locked(wanted)
            else:
                self._line.append(_InLine(names, lambda: then(self.leaders(wanted))))
        if is_known:
            then(found)
        else:
            self._ask_if_needed()

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        """As far as they are known now."""
        with self._lock:
            return self._leaders_locked(partitions)

    def when_met_anew(self, then: Callable[[], object]) -> None:
        """Call ``then`` when a broker has just said which others there are: not those that have gone."""
        with self._lock:
            self._line.append(_InLine(frozenset(), then))
        self._ask_if_needed()

    def topic_ids(self, names: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics, as far as they are known now, and have one."""
        with self._lock:
            found = {name: self._topics[name].topic_id for name in names if name in self._topics}
        return {name: topic_id for name, topic_id in found.items() if topic_id is not None}

    def note_stale(self, topics: Iterable[str]) -> None:
        """What is known of these topics is wrong, or may be: look it up before the next use."""
        with self._lock:
            self._stale.update(topics)

    def _knows_locked(self, names: Iterable[str]) -> bool:
        if not self._nodes:
            return False
        oldest = time.monotonic() - self.config.metadata_max_age_ms / 1000
        for name in names:
            topic = self._topics.get(name)
            if topic is None or name in self._stale or topic.at < oldest or topic.error:
                return False
        return True

    def _leaders_locked(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        found = {}
        for each in partitions:
            topic = self._topics.get(each.topic)
            known = None if topic is None else topic.found.get(each.partition)
            if known is not None:
                found[each] = known
            elif topic is None:
                found[each] = Leader(None, error=ErrorCode.LEADER_NOT_AVAILABLE)
            elif topic.error:
                why = topic.message or f"topic {each.topic!r}: {topic.error.name}"
                found[each] = Leader(None, error=topic.error, message=why)
            elif each.partition not in topic.leaders:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[each] = Leader(None, error=unknown, message=f"there is no partition {each}")
            else:
                node_id, epoch = topic.leaders[each.partition]
                node = self._nodes.get(node_id)
                missing = ErrorCode.NONE if node is not None else ErrorCode.LEADER_NOT_AVAILABLE
                leader = Leader(node, epoch, missing, topic_id=topic.topic_id)
                found[each] = topic.found[each.partition] = leader
        return found

    # Looking up

    def _ask_if_needed(self) -> None:
        """Ask for the topics that those in the line need, unless a question is under way."""
        with self._lock:
            if self._is_asking or not self._line:
                return
            self._is_asking = True
            wait_ms = (self._asked_at - time.monotonic()) * 1000 + self.config.retry_backoff_ms
        if wait_ms > 0 and self._was_fruitless() and not self.dialer.loop.is_closed:
            self.dialer.loop.try_later(wait_ms, self._ask)
        else:
            self._ask()

    def _was_fruitless(self) -> bool:
        """Whether the first in the line needs what was just looked up."""
        with self._lock:
            names = self._line[0].names if self._line else frozenset()
            since = time.monotonic() - self.config.retry_backoff_ms / 1000
            return any(name in self._topics and self._topics[name].at > since for name in names)

    def _ask(self) -> None:
        with self._lock:
            names = sorted({name for each in self._line for name in each.names})
            self._stale.difference_update(names)
            self._asked_at = time.monotonic()
        request = MetadataRequest(
            tuple(TopicWanted(name=each) for each in names), allow_auto_topic_creation=False
        )

        Attempt(
            self,
            AnyNode(self),
            ApiKey.METADATA,
            lambda _: request,
            lambda reply: self._asked(names, reply),
            client_id=self.dialer.client_id,
            lane=Lane.SOON,
            first=_FIRST_VERSION,
            timeout_ms=self.config.request_timeout_ms,
        ).begin()

    def _asked(self, names: Sequence[str], reply: Reply) -> None:
        if reply.error is ErrorCode.NONE:
            self.learn(reply.response)
        else:
            self._note_failure(names, reply)
        self._move_line(frozenset(names))
        with self._lock:
            self._is_asking = False
        self._ask_if_needed()

    def learn(self, response: MetadataResponse) -> None:
        """Take in what a broker has said of brokers and topics."""
        now = time.monotonic()
        with self._lock:
            if self._is_closed:
                return
            there = set()
            for broker in response.brokers:
                address, is_alone = Address(broker.host, broker.port), len(response.brokers) == 1
                self._node_at_locked(broker.node_id, address, is_alone=is_alone)
                there.add(broker.node_id)
            for gone in [each for each in self._nodes if each not in there]:
                node = self._nodes.pop(gone)
                self._forget_found_locked()
                if node not in self._bootstrap and node not in self._nodes.values():
                    node.close()
            self._controller_id = response.controller_id
            self._learned_at = now
            for topic in response.topics:
                if topic.name is not None:
                    leaders = {
                        each.partition: (each.leader_id, each.leader_epoch) for each in topic.partitions
                    }
                    code = code_of_number(topic.error_code)
                    topic_id = self._id_locked(topic.name, topic.topic_id)
                    self._topics[topic.name] = _Topic(leaders, code, now, None, topic_id, {})
                    self._stale.discard(topic.name)

    def _id_locked(self, name: str, topic_id: UUID) -> UUID | None:
        """The id of a topic: the same object as before, if it is the same. It is compared with each fetch."""
        known = self._topics.get(name)
        if known is not None and known.topic_id == topic_id:
            return known.topic_id
        return None if topic_id == NO_UUID else topic_id

    def _note_failure(self, names: Sequence[str], reply: Reply) -> None:
        """Nothing is known. What was known before stays, and may be right."""
        with self._lock:
            for name in names:
                known = self._topics.get(name)
                if known is None or known.error:
                    self._topics[name] = _Topic({}, reply.error, time.monotonic(), reply.message, None, {})
                self._stale.add(name)

    def _move_line(self, asked: frozenset[str]) -> None:
        """Those go on that wait for nothing else, up to the first that does."""
        while True:
            with self._lock:
                if not self._line or not self._line[0].names <= asked:
                    return
                first = self._line[0]
            first.go_on()
            with self._lock:
                self._line.popleft()

    def note_farewells(self, change: int) -> None:
        """So many more are said, or fewer. Between two tries of one no connection is busy."""
        with self._lock:
            self._farewell_count += change

    def wait_until_quiet(self, seconds: float) -> None:
        """Wait until what is answered soon is answered; so long at most."""
        until = time.monotonic() + seconds
        with self._lock:
            every = {*self._nodes.values(), *self._bootstrap}
        while time.monotonic() < until and (self._farewell_count or any(each.is_busy for each in every)):
            time.sleep(0.001)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            every = {*self._nodes.values(), *self._bootstrap}
        for each in every:
            each.close()


class AnyNode(Target):
    """Any broker, and others while it is silent. For what changes nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: list[Node] = []
        """The brokers that were asked last, each once."""

    @property
    def choice(self) -> int:
        return len(self._cluster.choice())

    def find(self, then: Callable[[Node | Reply], object]) -> None:
        node = self._cluster.any_node(but=self._asked)
        self._asked = [node] if node in self._asked else [*self._asked, node]
        then(node)


class Controller(Target):
    """The broker that changes topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._was_wrong = False

    def find(self, then: Callable[[Node | Reply], object]) -> None:
        is_wrong, self._was_wrong = self._was_wrong, False
        self._cluster.when_controller_known(then, is_wrong=is_wrong)

    def forget(self) -> None:
        self._was_wrong = True


class OneNode(Target):
    """A certain broker."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def find(self, then: Callable[[Node | Reply], object]) -> None:
        then(self._node)
