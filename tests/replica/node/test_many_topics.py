"""Hundreds of topics that are made at once: what each node and the coordinator do for all of them."""

from __future__ import annotations

import threading
from collections import Counter

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import CreateTopicsRequest, NewTopic
from logstore.errors import StorageError
from logstore.logdir.catalogue import CatalogueWriter
from logstore.logdir.directory import LogDirectory
from logstore.logdir.open_logs import OpenLogs
from logstore.model import TopicPartition
from logstore.replica.coordination.change_log import ChangeLog
from logstore.replica.node import node as node_module
from tests.replica.node.cluster import eventually


def ask(cluster, names, node_id=None):
    """What became of each topic."""
    addresses = cluster.addresses if node_id is None else [cluster.nodes[node_id].address]
    with logstore.connect(*addresses) as remote:
        topics = tuple([NewTopic(name, 1, {}, 3) for name in names])
        return wait_for(remote.broker.create_topics(CreateTopicsRequest(topics))).topics


def has(node, names):
    return all(TopicPartition(name, 0) in node._replicas for name in names)


def test_what_is_stored_for_many_is_stored_once(cluster, monkeypatch):
    """The last of 250 took its first record 25 seconds after it was made: each was a change of the
    coordinator, and two catalogues of each node."""
    assert {each.error for each in ask(cluster, ["first"])} == {ErrorCode.NONE}
    eventually(lambda: all(has(node, ["first"]) for node in cluster.nodes.values()))
    calls = Counter()
    for kind, name in ((CatalogueWriter, "write"), (ChangeLog, "try_append")):
        real = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda *given, name=name, real=real: calls.update([name]) or real(*given)
        )
    names = [f"t{number:03}" for number in range(100)]
    assert {each.error for each in ask(cluster, names)} == {ErrorCode.NONE}
    eventually(lambda: all(has(node, names) for node in cluster.nodes.values()))
    assert calls["write"] == 2 * 2 * 3  # for 64 topics and for the rest, before and after, on each node
    assert calls["try_append"] < 10  # of signs of life and ISRs there may be some
    with logstore.connect(*cluster.addresses) as remote, remote.producer(acks="all") as producer:
        for each in [producer.send(name, b"x") for name in ("t000", "t099")]:
            each.result()


def test_others_are_not_held_up_by_many_that_come(cluster, monkeypatch):
    """A node makes some, and looks at what has happened before it makes the next."""
    monkeypatch.setattr(node_module, "CREATED_AT_A_TIME", 3)
    done = []
    create = LogDirectory.create_topics
    monkeypatch.setattr(
        LogDirectory,
        "create_topics",
        lambda self, topics, *given: done.append((self, len(topics))) or create(self, topics, *given),
    )
    step = node_module.Node._step
    monkeypatch.setattr(
        node_module.Node, "_step", lambda self: done.append((self.directory, "step")) or step(self)
    )
    names = [f"t{number}" for number in range(10)]
    ask(cluster, names)
    for node in cluster.nodes.values():
        eventually(lambda node=node: has(node, names))
        own = [what for directory, what in done.copy() if directory is node.directory]
        assert max(each for each in own if each != "step") <= 3
        assert all("step" in some for some in zip(own, own[1:], own[2:], strict=False))


def test_several_that_ask_for_the_same_make_each_once(cluster):
    """Who came second was told that topics were being created, or that they existed, and nobody had them."""
    names = [f"t{number}" for number in range(30)]
    found = []
    threads = [
        threading.Thread(target=lambda node_id=node_id: found.append(ask(cluster, names, node_id)))
        for node_id in (1, 2, 3, 1)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for outcomes in zip(*found, strict=True):
        kinds = Counter(each.error for each in outcomes)
        assert kinds == {ErrorCode.NONE: 1, ErrorCode.TOPIC_ALREADY_EXISTS: 3}, outcomes
    assert set(names) < set(cluster.view.topics)


def test_what_is_refused_for_one_is_not_refused_for_the_others(cluster, monkeypatch, caplog):
    """A disk that is damaged under one of them, say. It is tried again, and told once."""
    open_log, tries = OpenLogs._open, []

    def refuse(self, partition, *given, **options):
        if partition.topic == "t5":
            tries.append(partition)
            raise StorageError(5, "Input/output error", "t5-0")
        return open_log(self, partition, *given, **options)

    names = [f"t{number}" for number in range(10)]
    others = [name for name in names if name != "t5"]
    with monkeypatch.context() as patched:
        patched.setattr(OpenLogs, "_open", refuse)
        ask(cluster, names)
        eventually(lambda: all(has(node, others) for node in cluster.nodes.values()))
        eventually(lambda: len(tries) > 20)
        assert not any(has(node, ["t5"]) for node in cluster.nodes.values())
    assert sum("'t5' cannot be held here" in each.getMessage() for each in caplog.records) == 3
    eventually(lambda: all(has(node, ["t5"]) for node in cluster.nodes.values()))
