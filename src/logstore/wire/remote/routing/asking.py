"""Requests that go to one broker, to the coordinators of several keys, or to all brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.wire.remote.connections.nodes import Node
from logstore.wire.remote.connections.questions import RemotePending, Reply, throttle_of
from logstore.wire.remote.routing.attempt import Attempt, Target
from logstore.wire.remote.routing.cluster import Cluster, OneNode
from logstore.wire.remote.routing.coordinators import Coordinators, Kind
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")
A = TypeVar("A")


def ask(
    cluster: Cluster,
    target: Target,
    translation: Translation[Q, R],
    request: Q,
    client_id: str,
    done: Callable[[R, int], object],
    *,
    waits_for_broker: bool = True,
) -> None:
    """Ask one broker. ``done`` gets the result, and for how long the broker wants to be left alone.
    ``waits_for_broker``: whether one that is not there may come back."""

    def take(reply: Reply) -> None:
        done(translation.result_of(request, reply), throttle_of(reply))

    Attempt(
        cluster,
        target,
        translation.key,
        lambda version: translation.build(request, version),
        take,
        client_id=client_id,
        timeout_ms=cluster.config.request_timeout_ms,
        lane=translation.lane,
        first=translation.first,
        last=translation.last,
        judge=lambda reply: translation.judge(translation.result_of(request, reply)),
        may_repeat=translation.may_repeat,
        wait_ms=translation.wait_ms(request),
        waits_for_broker=waits_for_broker,
    ).begin()


def pending_of(
    cluster: Cluster, target: Target, translation: Translation[Q, R], request: Q, client_id: str
) -> RemotePending[R]:
    """The same, as a pending result."""
    pending: RemotePending[R] = RemotePending()
    ask(cluster, target, translation, request, client_id, pending.complete_throttled)
    return pending


class Gathered(Generic[A]):
    """Answers to several questions, until all are there."""

    def __init__(self, count: int, done: Callable[[list[A]], object]) -> None:
        self._lock = threading.Lock()
        self._answers: list[A] = []
        self._missing = count
        self._done = done
        if not count:
            done([])

    def add(self, answer: A) -> None:
        """One is answered."""
        with self._lock:
            self._answers.append(answer)
            self._missing -= 1
            is_over = not self._missing
        if is_over:
            self._done(self._answers)


def ask_all(
    cluster: Cluster,
    translation: Translation[Q, R],
    request: Q,
    client_id: str,
    done: Callable[[list[R]], object],
) -> None:
    """Ask each broker that the cluster has now. Cost: a request for metadata before."""

    def go_on() -> None:
        nodes = cluster.nodes()
        gathered = Gathered(len(nodes), done)
        for node in nodes:
            ask(
                cluster,
                OneNode(node),
                translation,
                request,
                client_id,
                lambda result, _: gathered.add(result),
            )

    cluster.when_met_anew(go_on)


def ask_coordinators(
    cluster: Cluster,
    coordinators: Coordinators,
    kind: Kind,
    translation: Translation[tuple[str, ...], dict[str, A]],
    keys: Iterable[str],
    client_id: str,
    done: Callable[[dict[str, A]], object],
) -> None:
    """Ask the coordinators of keys, each for its own. The answers come together in the order of the keys."""
    wanted = tuple(dict.fromkeys(keys))

    def finish(answers: Sequence[dict[str, A]]) -> None:
        found = {key: answer for each in answers for key, answer in each.items()}
        missing = [key for key in wanted if key not in found]
        why = "the broker has left it out of its answer"
        found |= translation.refuse(tuple(missing), ErrorCode.UNKNOWN_SERVER_ERROR, why) if missing else {}
        done({key: found[key] for key in wanted})

    def go_on(found: dict[str, Node | Reply]) -> None:
        parts: dict[Node, list[str]] = {}
        refused: dict[str, A] = {}
        for key, node in found.items():
            if isinstance(node, Reply):
                refused |= translation.refuse((key,), node.error, node.message)
            else:
                parts.setdefault(node, []).append(key)
        gathered: Gathered[dict[str, A]] = Gathered(len(parts) + 1, finish)
        gathered.add(refused)
        for part in parts.values():
            ask(
                cluster,
                coordinators.of(kind, part[0]),
                translation,
                tuple(part),
                client_id,
                lambda result, _: gathered.add(result),
            )

    coordinators.find(kind, wanted, go_on)
