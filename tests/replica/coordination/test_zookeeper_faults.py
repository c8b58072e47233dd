"""ZooKeeper that is killed, paused or cut off. 30 s, for a server of its own that starts four times."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time

import pytest

from logstore.errors import RetriableError, UsageError
from logstore.replica.coordination import layout
from logstore.replica.coordination.tree import Why, Write
from tests.replica.coordination import server
from tests.replica.coordination.places import (
    SESSION_MS,
    Disk,
    Place,
    Told,
    chroot,
    create_topic,
    elected,
    eventually,
    register,
)
from tests.replica.coordination.proxy import Proxy

kazoo_client = pytest.importorskip("kazoo.client")

pytestmark = pytest.mark.interop

LONG_MS = 10_000
"""A session that outlives a restart of the server on a busy machine. Its tick allows for 4 s at most."""


@pytest.fixture
def fragile(tmp_path):
    """A server that a test may harm."""
    reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    started = server.ZooKeeperServer(tmp_path, longest_ms=2 * LONG_MS)
    started.start()
    yield started
    started.kill()


@pytest.fixture
def opened():
    """Places and proxies to close."""
    found = []
    yield found
    for each in found:
        each.close()


def _raise_epoch(session, coordinator, count, tell=lambda done: None):
    """By compare-and-set, ``count`` times. Returns in how many tries, and how often nobody knew."""
    tries = unknown = done = 0
    state = coordinator.read_state(("t", 0))
    while done < count:
        tries += 1
        try:
            outcomes = session.propose({("t", 0): elected(state, session.registration.member)})
        except RetriableError:
            unknown += 1
            state = eventually(lambda: _read(coordinator))
            continue
        state = outcomes["t", 0].state
        done += outcomes["t", 0].is_stored
        tell(done)
    return tries, unknown


def _read(coordinator):
    try:
        return coordinator.read_state(("t", 0))
    except RetriableError:
        return None


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_change_whose_answer_is_lost_is_made_once(zookeeper, opened, way):
    """Whether the request was lost or its answer: the outcome is found out, and is right."""
    place = chroot(zookeeper)
    proxy = Proxy(zookeeper.port)
    behind = Place("zookeeper", f"{proxy.address}/{place.where.partition('/')[2]}")
    opened += [place, behind, proxy]
    here, there = behind.open(session_ms=4_000), place.open()
    session = register(here, 1)
    control = session.try_to_control()
    create_topic(control)
    told = Told(there)
    other = register(there, 2)
    for _ in range(8):
        before = proxy.cut_count
        state = there.read_state(("t", 0))
        proxy.cuts = way
        (outcome,) = session.propose({("t", 0): elected(state, session.registration.member)}).values()
        assert outcome.is_stored
        assert outcome.state == there.read_state(("t", 0))
        assert outcome.state.version == state.version + 1
        eventually(lambda before=before: proxy.cut_count > before)
    (outcome,) = other.propose({("t", 0): elected(outcome.state, other.registration.member)}).values()
    assert outcome.state.version == outcome.state.leader_epoch == 9
    assert not session.is_lost
    eventually(lambda: told.view.partitions.get(("t", 0)) == outcome.state)
    eventually(lambda: here.view == there.view)


def test_changes_through_a_bad_connection_add_up(zookeeper, opened):
    place = chroot(zookeeper)
    proxy = Proxy(zookeeper.port)
    behind = Place("zookeeper", f"{proxy.address}/{place.where.partition('/')[2]}")
    opened += [place, behind, proxy]
    here, there = behind.open(session_ms=4_000), place.open()
    session, other = register(here, 1), register(there, 2)
    create_topic(session.try_to_control())
    rng = random.Random(1)
    ended = threading.Event()

    def harm():
        while proxy.cut_count < 10 and not ended.wait(rng.uniform(0.02, 0.3)):
            proxy.cuts = rng.choice(["to", "from"])

    threads = [
        threading.Thread(target=harm),
        threading.Thread(target=_raise_epoch, args=(other, there, 30)),
    ]
    for thread in threads:
        thread.start()
    raised = unknown = 0
    try:
        while raised < 200 or proxy.cut_count <= 3:  # a quick machine needs more of them
            unknown += _raise_epoch(session, here, 50)[1]
            raised += 50
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    proxy.cuts = None
    state = there.read_state(("t", 0))
    assert 30 + raised <= state.version == state.leader_epoch <= 30 + raised + unknown
    eventually(lambda: here.view == there.view)


def test_a_killed_server_comes_back_and_nothing_is_lost(fragile, opened):
    """Sessions outlive it. What was stored is there, and what is changed later is told."""
    place = chroot(fragile)
    opened.append(place)
    here, there = (place.open(session_ms=LONG_MS) for _ in range(2))
    lost = threading.Event()
    disk = Disk()
    session = here.register(disk.node(1), disk.remember, on_lost=lost.set)
    create_topic(session.try_to_control())
    told = Told(there)
    eventually(lambda: told.view and told.view.partitions)
    done = []
    writer = threading.Thread(target=lambda: done.append(_raise_epoch(session, here, 40)))
    writer.start()
    for _ in range(2):
        time.sleep(0.1)
        fragile.kill()
        time.sleep(0.1)
        fragile.start()
    writer.join()
    ((_, unknown),) = done
    state = there.read_state(("t", 0))
    assert 40 <= state.version == state.leader_epoch <= 40 + unknown
    assert not lost.is_set()
    assert session.has_lease
    eventually(lambda: told.view.partitions["t", 0] == state and 1 in told.view.living)
    versions = [change.view.partitions["t", 0].version for change in told.changes if change.partitions]
    assert versions == sorted(set(versions))


def test_a_server_that_does_not_answer_ends_the_lease_first(fragile, opened):
    """It is paused for longer than the session. The node steps down by itself; when the server is back, the
    node has a lease again, or begins a new life."""
    place = chroot(fragile)
    opened.append(place)
    here = place.open(session_ms=SESSION_MS)
    lost = threading.Event()
    disk = Disk()
    session = here.register(disk.node(1), disk.remember, on_lost=lost.set)
    fragile.pause()
    paused_ms = here.clock.monotonic_ms()
    eventually(lambda: not session.has_lease)
    assert here.clock.monotonic_ms() < paused_ms + SESSION_MS
    with pytest.raises(RetriableError):
        session.propose({("t", 0): layout.decode_state("", _any_state())})
    with pytest.raises(RetriableError, match="does not answer"):
        place.open(session_ms=1_000)
    fragile.resume()
    eventually(lambda: session.has_lease or lost.wait(0))
    if lost.is_set():
        assert eventually(lambda: _try_to_register(here, disk)).registration.life == 2
    else:
        assert session.try_to_control().epoch == 1


def _any_state():
    from logstore.replica.coordination.tree import Stored
    from logstore.replica.rules.partition_state import PartitionState

    return Stored(layout.encode_state(PartitionState((1,), None, 0, ()), 0), 0)


def _try_to_register(coordinator, disk):
    try:
        return register(coordinator, 1, disk)
    except RetriableError:
        return None


def test_an_address_where_nothing_answers_is_told_with_what_to_see():
    """1 s."""
    with pytest.raises(
        RetriableError, match=r"localhost:1/x does not answer within session_ms \(1000\): see"
    ):
        Place("zookeeper", "localhost:1/x").open(session_ms=1_000)


def test_a_server_that_goes_away_is_said(fragile, opened, caplog):
    """By an error to each caller, and by one warning: kazoo has several a second, and says not of whom."""
    place = chroot(fragile)
    opened.append(place)
    here = place.open(session_ms=SESSION_MS)
    session = register(here, 1)
    fragile.kill()
    eventually(lambda: not session.has_lease)
    with pytest.raises(RetriableError, match=r"zookeeper://127\.0\.0\.1.* does not answer"):
        here.read_state(("t", 0))
    with pytest.raises(RetriableError):
        session.try_to_control()
    (warning,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert warning.startswith(f"zookeeper://{place.where} does not answer")
    session.close()  # and this does not hang


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_server_that_comes_back_without_what_it_knew_is_told_of(fragile, opened, caplog, is_empty):
    """It hangs up on who has seen more than it knows: that looked like a server that is down. 8 s."""
    data, copy = fragile.home / "data", fragile.home / "copy"
    place = chroot(fragile)
    opened.append(place)
    place.open(session_ms=SESSION_MS).close()
    fragile.kill()
    shutil.copytree(data, copy)
    fragile.start()
    create_topic(register(eventually(lambda: _reached(place)), 1).try_to_control())
    fragile.kill()
    time.sleep(2 * SESSION_MS / 1000)

    def told():
        return [text for each in caplog.records if "has lost changes" in (text := each.getMessage())]

    assert not told()  # as long as it is only down
    shutil.rmtree(data)
    if not is_empty:
        shutil.copytree(copy, data)
    fragile.start()
    eventually(told)
    time.sleep(2 * SESSION_MS / 1000)
    (warning,) = told()
    assert warning.startswith(f"zookeeper://{place.where} runs, but it has lost changes")
    assert "--new-cluster" in warning


def _reached(place):
    try:
        return place.open(session_ms=SESSION_MS)
    except RetriableError:
        return None


def test_what_is_removed_below_the_nodes_is_told_once(zookeeper, opened, caplog):
    """It is looked for each second, and each look was a line that named no next step. 3 s."""
    place = chroot(zookeeper)
    opened.append(place)
    here = place.open(session_ms=SESSION_MS)
    Told(here)
    by_hand = kazoo_client.KazooClient(place.where)
    by_hand.start()
    try:
        for name in by_hand.get_children("/"):
            by_hand.delete(f"/{name}", recursive=True)
    finally:
        by_hand.stop()
        by_hand.close()

    def told():
        return [text for each in caplog.records if "zookeeper://" in (text := each.getMessage())]

    eventually(told)
    time.sleep(2.5)
    (warning,) = told()
    assert warning.startswith(f"zookeeper://{place.where} lacks what the nodes keep there")
    assert "--new-cluster" in warning


def test_sessions_have_the_time_that_the_server_agrees_to(zookeeper, opened):
    """Its tick allows for 4 s at most: the lease must not be longer."""
    place = chroot(zookeeper)
    opened.append(place)
    coordinator = place.open(session_ms=60_000)
    session = register(coordinator, 1)
    time.sleep(1)
    assert session.has_lease
    assert session.lease_until_ms - coordinator.clock.monotonic_ms() < 20 * server.TICK_MS


def test_a_sign_of_life_is_a_change(zookeeper, opened):
    """Of nothing; so only a majority of servers can answer it."""
    place = chroot(zookeeper)
    opened.append(place)
    register(place.open(session_ms=1_000), 1)

    def last_change():
        (line,) = [line for line in zookeeper.ask("srvr").splitlines() if line.startswith("Zxid")]
        return int(line.split()[1], 16)

    before = last_change()
    time.sleep(1)
    assert 4 <= last_change() - before <= 30


def test_the_texts_are_those_of_kafka(zookeeper, opened):
    """As its documentation of the znodes has them; what is ours is below one key."""
    place = chroot(zookeeper)
    opened.append(place)
    coordinator = place.open()
    session = register(coordinator, 1)
    control = session.try_to_control()
    create_topic(control, "t", config={"retention.ms": "5"})
    control.change({("t", 0): elected(coordinator.read_state(("t", 0)), session.registration.member)})

    def text(path):
        return json.loads(coordinator._tree.read(path).data)

    broker = text("/brokers/ids/1")
    assert broker.pop("logstore")["life"] == 1
    assert broker.pop("timestamp").isdigit()
    assert broker == {
        "version": 5,
        "host": "127.0.0.1",
        "port": 9093,
        "jmx_port": -1,
        "endpoints": ["PLAINTEXT://127.0.0.1:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    state = text("/brokers/topics/t/partitions/0/state")
    assert state.pop("logstore") == {
        "replicas": [1, 2],
        "leader_life": 1,
        "isr_lives": [0, 0],
        "eligible": [],
        "adding": [],
        "removing": [],
    }
    assert state == {"version": 1, "leader": 1, "leader_epoch": 1, "isr": [1, 2], "controller_epoch": 1}
    topic = text("/brokers/topics/t")
    assert len(topic.pop("topic_id")) == 22
    assert topic == {
        "version": 3,
        "partitions": {"0": [1, 2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert text("/config/topics/t") == {"version": 1, "config": {"retention.ms": "5"}}
    assert text("/cluster/id") == {"version": "1", "id": coordinator.cluster_id}
    assert text("/controller_epoch") == 1
    controller = text("/controller")
    assert (controller["version"], controller["brokerid"]) == (1, 1)


def test_what_is_too_large_for_zookeeper_is_refused(zookeeper, opened):
    """The server would only hang up, again and again."""
    place = chroot(zookeeper)
    opened.append(place)
    coordinator = place.open()
    assert coordinator._tree.commit([Write("/nowhere", "")]).why is Why.MISSING
    control = register(coordinator, 1).try_to_control()
    with pytest.raises(UsageError, match="1,100,000 bytes"):
        control._commit([Write(layout.CONFIGS, "x" * 1_100_000)])
    create_topic(control)
