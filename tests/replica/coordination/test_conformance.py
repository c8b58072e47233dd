"""What every coordinator does. 10 s with files, 15 s with ZooKeeper."""

from __future__ import annotations

import random
import threading
import time
import uuid
from functools import partial

import pytest

from logstore.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    InvalidTopicError,
    LockedError,
    LogstoreError,
    RetriableError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from logstore.replica.coordination import registration
from logstore.replica.coordination.interface import MOST_TEXT_BYTES, TEXTS, Endpoint, NewTopic
from logstore.replica.rules.partition_state import Member, PartitionState, Registration
from tests.replica.coordination.places import (
    SESSION_MS,
    Disk,
    Told,
    create_topic,
    elected,
    eventually,
    new_state,
    register,
)

# The cluster


def test_the_first_to_come_names_the_cluster(place):
    first, second = place.open(), place.open()
    assert first.cluster_id == second.cluster_id
    assert place.open(cluster_id=first.cluster_id).cluster_id == first.cluster_id
    with pytest.raises(UsageError, match=f"belongs to cluster {first.cluster_id}, not to another"):
        place.open(cluster_id="another")


def test_a_cluster_takes_the_id_that_a_store_has_already(place):
    assert place.open(cluster_id="mine").cluster_id == "mine"
    assert place.open().cluster_id == "mine"


def test_a_cluster_that_must_be_there_is_not_begun(place):
    for _ in range(2):  # nothing was left that the second could take for one
        with pytest.raises(UsageError, match=r"there is no cluster in .*--new-cluster"):
            place.open(create=False)
    cluster_id = place.open().cluster_id
    assert place.open(create=False).cluster_id == cluster_id


def test_a_closed_coordinator_says_so(place):
    coordinator = place.open()
    coordinator.close()
    for use in (
        lambda: register(coordinator, 1),
        lambda: coordinator.watch(print),
        lambda: coordinator.read_state(("t", 0)),
    ):
        with pytest.raises(ClosedError):
            use()


# Lives


def test_a_node_registers_and_all_see_it(place):
    here, there = place.open(), place.open()
    disk = Disk()
    node = disk.node(7, rack="r1")._replace(
        endpoints=(Endpoint("PLAINTEXT", "10.0.0.1", 9092), Endpoint("OUT", "::1", 9093, "SSL"))
    )
    session = here.register(node, disk.remember)
    assert session.registration == Registration(7, disk.life, 0, 0, rack="r1")
    assert session.has_lease
    seen = eventually(lambda: there.view.living.get(7))
    assert seen.registration == session.registration
    assert seen.endpoints == node.endpoints
    assert there.view.registrations == {7: session.registration}


def test_lives_rise_over_all_nodes(place):
    first, second = place.open(), place.open()
    disks = [Disk(), Disk()]
    lives = []
    for _ in range(3):
        for node_id, coordinator in enumerate((first, second)):
            session = register(coordinator, node_id, disks[node_id])
            lives.append(session.registration.life)
            session.close()
    assert lives == sorted(set(lives))


def test_the_disk_knows_of_a_life_before_anybody_else(place):
    here, there = place.open(), place.open()

    def remember(life):
        assert 1 not in there.view.living
        assert there._tree.read("/brokers/ids/1") is None

    here.register(Disk().node(1), remember)

    def fail(life):
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        there.register(Disk().node(2), fail)
    assert there._tree.read("/brokers/ids/2") is None


def test_a_node_id_in_use_is_refused(place):
    here, there = place.open(), place.open()
    session = register(here, 1)
    with pytest.raises(LockedError, match=r"node id 1 is in use by 127\.0\.0\.1:9093, in its life \d"):
        register(there, 1, Disk("another"))
    assert session.has_lease
    assert not session.is_lost
    session.close()
    register(there, 1, Disk("another"))


def test_who_waits_for_a_node_id_says_so(place, monkeypatch, caplog):
    monkeypatch.setattr(registration, "_TELL_AFTER_SECONDS", 0.05)
    here, there = place.open(), place.open()
    register(here, 1)
    with pytest.raises(LockedError):
        register(there, 1, Disk("another"), wait_ms=200)
    (said,) = [each.getMessage() for each in caplog.records if each.name == registration.__name__]
    assert said.startswith("node id 1 is in use by 127.0.0.1:9093, in its life ")


def test_a_node_waits_for_the_end_of_its_earlier_process(place):
    here, there = place.open(), place.open()
    session = register(here, 1)
    threading.Timer(0.3, session.close).start()
    assert register(there, 1, wait_ms=10_000).registration.life > session.registration.life


def test_the_same_process_takes_its_registration_over(place):
    here, there = place.open(), place.open()
    told = Told(there)
    disk = Disk()
    lost = []
    first = here.register(disk.node(1), disk.remember, on_lost=lambda: lost.append(1))
    control = first.try_to_control()
    second = register(here, 1, disk)
    assert first.is_lost
    assert not first.has_lease
    assert second.has_lease
    with pytest.raises(FencedError, match="life 1 of node 1 is over"):
        first.leave()
    with pytest.raises(FencedError):
        create_topic(control)
    eventually(lambda: told.view and told.view.registrations.get(1) == second.registration)
    assert second.try_to_control().epoch == 2
    assert not lost  # it knows


def test_one_coordinator_registers_one_node(place):
    coordinator = place.open()
    session = register(coordinator, 1)
    with pytest.raises(UsageError, match="has registered node 1"):
        register(coordinator, 2)
    assert session.has_lease
    session.close()
    register(coordinator, 2)


def test_an_older_copy_of_the_coordinator_is_refused(place):
    coordinator, disk = place.open(), Disk()
    disk.life = 5
    with pytest.raises(CorruptionError, match="knows of 0 lives, but node 1 has had life 5"):
        register(coordinator, 1, disk)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_node_has_kept_is_as_in_the_simulator(place, seed):
    """Stops, crashes, other disks, older copies."""
    from logstore.testing.simulator.coordinator import Coordinator
    from tests.replica.coordination.simulated import Answers, new_coordinator

    rng = random.Random(seed)
    answers = Answers()
    simulated: Coordinator = new_coordinator(answers)
    coordinator = place.open()
    disks = [Disk("a")]
    for start in range(1, 9):
        if rng.random() < 0.3:
            disks.append(Disk(rng.choice("bc") + str(start)))
        if rng.random() < 0.3:  # an older copy
            copy = Disk(disks[-1].disk_id)
            copy.life = max(0, disks[-1].life - rng.randint(1, 2))
            disks.append(copy)
        disk, is_whole = disks[-1], rng.random() < 0.5
        is_new_disk = disk.life == 0 and start > 1
        simulated.register(1, start, disk.life if not is_new_disk else 0, is_whole=is_whole)
        session = coordinator.register(disk.node(1, is_whole=is_whole), disk.remember)
        assert session.registration == simulated.living[1]
        simulated.beat(1, session.registration.life, 0)
        session.close()


def test_another_disk_has_kept_nothing_whatever_life_it_says(place):
    coordinator, disk = place.open(), Disk("one")
    register(coordinator, 1, disk)
    other = Disk("two")
    other.life = disk.life
    registration = register(coordinator, 1, other).registration
    assert registration.durable_since == registration.whole_since == registration.life


def test_leaving_is_told(place):
    here, there = place.open(), place.open()
    session = register(here, 1)
    session.leave()
    assert session.registration.is_leaving
    eventually(lambda: there.view.living.get(1) and there.view.living[1].registration.is_leaving)
    session.close()
    session.close()
    eventually(lambda: 1 not in there.view.living)
    assert session.is_lost


def test_a_registration_that_was_removed_by_hand_is_lost(place):
    from logstore.replica.coordination.tree import Delete

    here, there = place.open(), place.open()
    lost = threading.Event()
    disk = Disk()
    session = here.register(disk.node(1), disk.remember, on_lost=lost.set)
    eventually(lambda: 1 in here.view.living)
    assert there._tree.commit([Delete("/brokers/ids/1")]) is None
    assert lost.wait(10)
    assert session.lease_until_ms == 0
    assert register(here, 1, disk).has_lease


def test_a_lease_goes_on_while_the_node_lives(place):
    coordinator = place.open()
    session = register(coordinator, 1)
    until = time.monotonic() + 1.3 * SESSION_MS / 1000
    ends = set()
    while time.monotonic() < until:
        assert session.has_lease
        left_ms = session.lease_until_ms - coordinator.clock.monotonic_ms()
        assert 0 < left_ms < SESSION_MS
        ends.add(session.lease_until_ms)
        time.sleep(0.01)
    assert len(ends) > 5


# Topics and states


def test_a_topic_is_there_whole_or_not_at_all(place):
    here, there = place.open(), place.open()
    control = register(here, 1).try_to_control()
    topic_id = create_topic(
        control, "orders", replicas=[(1, 2), (2, 1), (2, 3)], config={"retention.ms": "1000"}
    )
    view = eventually(lambda: len(there.view.partitions) == 3 and there.view)
    assert view.topics["orders"].topic_id == topic_id
    assert view.topics["orders"].config == {"retention.ms": "1000"}
    state = view.partitions["orders", 2]
    assert state == there.read_state(("orders", 2))
    assert state[:6] == (state.replicas, None, 0, (Member(2, 0), Member(3, 0)), (), 0)
    assert state.replicas == (2, 3)
    with pytest.raises(TopicExistsError):
        create_topic(control, "orders")
    with pytest.raises(InvalidTopicError):
        create_topic(control, "or/ders")
    with pytest.raises(UsageError, match="each of them a replica"):
        create_topic(control, "none", replicas=[()])

    control.configure_topic("orders", lambda before: {})
    eventually(lambda: there.view.topics["orders"].config == {})
    control.delete_topic("orders")
    eventually(lambda: not there.view.topics and not there.view.partitions)
    for use in (control.delete_topic, lambda name: control.configure_topic(name, dict)):
        with pytest.raises(UnknownTopicError):
            use("orders")
    wanted = uuid.uuid4()
    assert create_topic(control, "orders", topic_id=wanted) == wanted


def test_many_topics_are_made_together(place, monkeypatch):
    """With one change, or with two if one of them is in the way, or is left of an earlier one; each is whole
    or not there."""
    coordinator = place.open()
    control = register(coordinator, 1).try_to_control()
    commits = []
    commit = type(coordinator._tree).commit
    monkeypatch.setattr(
        type(coordinator._tree),
        "commit",
        lambda self, steps: commits.append(len(steps)) or commit(self, steps),
    )
    states = [new_state((1, 2))] * 3
    names = [f"t{number}" for number in range(40)]
    ids = control.create_topics([NewTopic(name, states, {"retention.ms": "7"}) for name in names])
    assert len(commits) == 1
    again = [NewTopic("u", states), NewTopic("t7", states), NewTopic("/", states), NewTopic("v", [])]
    made = control.create_topics([*again, NewTopic("w", states, topic_id=ids[0].__class__(int=7))])
    assert [type(each).__name__ for each in made[1:4]] == [
        "TopicExistsError",
        "InvalidTopicError",
        "UsageError",
    ]
    assert made[4].int == 7
    assert len(commits) == 3
    view = eventually(lambda: len(coordinator.view.partitions) == 3 * 42 and coordinator.view)
    known = {name: topic.topic_id for name, topic in view.topics.items()}
    assert known == {**dict(zip(names, ids, strict=True)), "u": made[0], "w": made[4]}
    assert view.topics["t39"].config == {"retention.ms": "7"}


def test_two_threads_that_create_the_same_topic_make_it_once(place, monkeypatch):
    """Neither takes what the other has made half of for what a controller has left that died."""
    coordinator = place.open()
    control = register(coordinator, 1).try_to_control()
    monkeypatch.setattr(type(coordinator._tree), "most_steps", 20)
    commit, told = control._commit, []

    def create():
        try:
            told.append(create_topic(control, replicas=[(1,)] * 20))
        except LogstoreError as error:
            told.append(type(error))

    second = threading.Thread(target=create)

    def meanwhile(steps):
        refusal = commit(steps)
        if second.ident is None:
            second.start()
            second.join(0.2)
        return refusal

    monkeypatch.setattr(control, "_commit", meanwhile)
    create()
    second.join()
    view = eventually(lambda: len(coordinator.view.partitions) == 20 and coordinator.view)
    assert told == [view.topics["t"].topic_id, TopicExistsError]


def test_no_change_of_a_topics_settings_is_lost(place):
    """Each begins with what the last has left, also if that came in between, and whatever the view has."""
    here = place.open()
    control = register(here, 1).try_to_control()
    create_topic(control, config={"a": "1"})

    def change(before):
        if "b" not in before:
            control.configure_topic("t", lambda now: {**now, "b": "2"})
        return {**before, "c": "3"}

    control.configure_topic("t", change)
    control.configure_topic("t", lambda before: {**before, "d": "4"})
    wanted = {"a": "1", "b": "2", "c": "3", "d": "4"}
    eventually(lambda: "t" in here.view.topics and here.view.topics["t"].config == wanted)


def test_what_a_controller_left_half_done_is_swept_up(place):
    """It was deleting the topic, or creating it."""
    from logstore.replica.coordination import layout
    from logstore.replica.coordination.tree import Delete

    coordinator = place.open()
    control = register(coordinator, 1).try_to_control()
    topic_id = create_topic(control, replicas=[(1,)] * 3)
    assert coordinator._tree.commit([Delete(layout.topic_id_path(topic_id))]) is None
    assert coordinator._tree.commit([Delete(path) for path in layout.partition_paths("t", 1)[::-1]]) is None
    eventually(lambda: not coordinator.view.partitions)
    create_topic(control, replicas=[(1,)] * 2)
    eventually(lambda: len(coordinator.view.partitions) == 2)


def test_a_state_is_replaced_by_its_version(place):
    here, there = place.open(), place.open()
    mine, others = register(here, 1), register(there, 2)
    create_topic(mine.try_to_control())
    state = here.read_state(("t", 0))
    led = elected(state, mine.registration.member)
    (outcome,) = mine.propose({("t", 0): led}).values()
    assert outcome == (True, led._replace(version=1))
    (outcome,) = others.propose({("t", 0): elected(state, others.registration.member)}).values()
    assert outcome == (False, led._replace(version=1))
    left = led._replace(isr=(mine.registration.member,), eligible=(Member(2, 9),), leader=None, version=1)
    (outcome,) = others.propose({("t", 0): left}).values()
    assert outcome.is_stored
    assert there.read_state(("t", 0)) == left._replace(version=2)
    outcomes = mine.propose({("t", 1): left, ("u", 0): left})
    assert set(outcomes.values()) == {(False, None)}


def test_that_a_topic_was_deleted_is_known_from_then_on(place):
    here, there = place.open(), place.open()
    control = register(here, 1).try_to_control()
    first, second = create_topic(control), create_topic(control, "other")
    assert not there.was_deleted(first)
    control.delete_topic("t")
    eventually(lambda: there.was_deleted(first))
    assert not there.was_deleted(second)
    again = create_topic(control)
    assert not here.was_deleted(again)
    assert here.was_deleted(first)


def test_a_topic_that_is_made_again_begins_in_a_later_leader_epoch(place):
    """librdkafka takes metadata with an earlier one for outdated, and reads nothing any more."""
    here, there = place.open(), place.open()
    control = register(here, 1).try_to_control()
    control.create_topic("t", [new_state([1])._replace(leader_epoch=7)])
    control.delete_topic("t")
    create_topic(control, replicas=[(1,)])
    control.add_partitions("t", 1, [new_state([1])])
    control.create_topic("later", [new_state([1])._replace(leader_epoch=9)])
    view = eventually(lambda: len(here.view.partitions) == 3 and here.view)
    assert [state.leader_epoch for _, state in sorted(view.partitions.items())] == [9, 8, 8]
    control.delete_topic("t")
    create_topic(control)
    assert there.read_state(("t", 0)).leader_epoch == 9
    control.delete_topic("t")  # before the view has heard of it, or just then
    create_topic(control)
    assert there.read_state(("t", 0)).leader_epoch >= 9


def test_a_topic_gets_more_partitions(place):
    here, there = place.open(), place.open()
    control = register(here, 1).try_to_control()
    create_topic(control, replicas=[(1,)])
    led = PartitionState((1, 2), Member(1, 1), 1, (Member(1, 1),))
    control.add_partitions("t", 1, [led, new_state([2])])
    view = eventually(lambda: len(there.view.partitions) == 3 and there.view)
    assert view.partitions["t", 1] == led
    assert view.partitions["t", 0].replicas == (1,)
    with pytest.raises(RetriableError, match="has 3 partitions, not 1"):
        control.add_partitions("t", 1, [new_state([1])])
    with pytest.raises(UnknownTopicError):
        control.add_partitions("none", 1, [new_state([1])])
    control.delete_topic("t")
    eventually(lambda: not there.view.partitions)


def test_what_is_proposed_for_a_deleted_topic_does_not_reach_its_successor(place):
    here, there = place.open(), place.open()
    control, leader = register(here, 1).try_to_control(), register(there, 2)
    create_topic(control)
    view = eventually(lambda: there.view.partitions and there.view)
    ended = threading.Event()
    there.watch(lambda change: ended.wait(10))  # it hears of nothing
    time.sleep(0.1)
    control.delete_topic("t")
    create_topic(control)
    (outcome,) = leader.propose(dict(view.partitions)).values()
    ended.set()
    assert outcome == (False, None)
    assert here.read_state(("t", 0)).version == 0


def test_many_states_change_at_once(place):
    """1,000 partitions fail over in a fraction of a second; as many calls would take minutes."""
    here, there = place.open(), place.open()
    session, other = register(here, 1), register(there, 2)
    control = session.try_to_control()
    create_topic(control, replicas=[(1, 2)] * 1_000)
    states = dict(eventually(lambda: len(there.view.partitions) == 1_000 and there.view.partitions))
    newer = {("t", at): elected(states["t", at], other.registration.member) for at in (0, 500, 999)}
    newer = {each: outcome.state for each, outcome in other.propose(newer).items()}
    started = time.monotonic()
    outcomes = control.change(
        {each: elected(state, session.registration.member) for each, state in states.items()}
    )
    took = time.monotonic() - started
    assert {each for each, outcome in outcomes.items() if not outcome.is_stored} == set(newer)
    assert all(outcomes[each].state == state for each, state in newer.items())
    eventually(lambda: sum(state.version for state in there.view.partitions.values()) == 1_000)
    assert took < 10


# The controller


def test_groups_have_settings_that_all_nodes_see(place):
    coordinators = place.open(), place.open()
    first, second = (register(each, number) for number, each in enumerate(coordinators, 1))
    name = "a/group.with %2E names/.."
    first.configure_group(name, lambda before: {**before, "share.delivery.count.limit": "7"})
    second.configure_group(name, lambda before: {**before, "share.isolation.level": "read_committed"})
    second.configure_group("..", lambda before: {"share.delivery.count.limit": "9"})
    both = {"share.delivery.count.limit": "7", "share.isolation.level": "read_committed"}
    late = place.open()
    for each in (*coordinators, late):
        eventually(lambda each=each: each.view.groups.get(name) == both)
        eventually(lambda each=each: len(each.view.groups) == 2)
    first.configure_group(name, lambda before: before)
    first.configure_group(name, lambda before: {})
    first.configure_group("never there", lambda before: {})
    for each in (*coordinators, late):
        eventually(lambda each=each: set(each.view.groups) == {".."})


def test_of_those_who_change_a_groups_settings_at_once_all_succeed(place):
    sessions = [register(place.open(), number) for number in (1, 2, 3)]

    def added(before, name):
        return {**before, name: "x"}

    def change(number):
        for count in range(10):
            sessions[number].configure_group("g", partial(added, name=f"{number}-{count}"))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    view = place.open()
    eventually(lambda: len(view.view.groups.get("g", ())) == 30)


def test_a_node_that_was_taken_for_dead_changes_no_groups(place):
    coordinator = place.open()
    session = register(coordinator, 1)
    register(coordinator, 1)
    with pytest.raises(FencedError):
        session.configure_group("g", lambda before: {"a": "b"})


def test_texts_that_nodes_have_in_common(place):
    coordinators = place.open(), place.open()
    first, second = (register(each, number) for number, each in enumerate(coordinators, 1))
    told = Told(coordinators[1])
    eventually(lambda: told.changes)
    seen = []

    def change(before, after):
        seen.append(before)
        return after

    assert first.replace_text("users", partial(change, after="alice")) == ("alice", 0)
    assert second.replace_text("users", partial(change, after="bob ß")) == ("bob ß", 1)
    assert first.replace_text("users", partial(change, after="bob ß")) == ("bob ß", 1), "as it was"
    assert second.replace_text("acls", partial(change, after="")) == ("", 0)
    assert seen == [None, "alice", "bob ß", None]
    expected = {"users": ("bob ß", 1), "acls": ("", 0)}
    late = place.open()
    for each in (*coordinators, late):
        eventually(lambda each=each: each.view.texts == expected)
    eventually(lambda: told.view.texts == expected)
    assert {name for each in told.changes for name in each.texts} == {"users", "acls"}
    assert "bob" not in repr(late.view)
    last = Told(late)
    eventually(lambda: last.changes)
    assert last.changes[0].texts == {"users", "acls"}


def test_of_those_who_change_a_text_at_once_all_succeed(place):
    sessions = [register(place.open(), number) for number in (1, 2, 3)]

    def added(before, word):
        return f"{before or ''} {word}"

    def change(number):
        for count in range(10):
            sessions[number].replace_text("quotas", partial(added, word=f"{number}-{count}"))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    data, version = eventually(lambda: place.open().view.texts.get("quotas"))
    assert sorted(data.split()) == sorted(f"{number}-{count}" for number in range(3) for count in range(10))
    assert version == 29


def test_a_text_that_is_too_large_is_refused(place):
    """All of them at their largest can be kept, and a new coordinator reads them."""
    session = register(place.open(), 1)
    for name in TEXTS:
        session.replace_text(name, lambda before: "x" * MOST_TEXT_BYTES)
    with pytest.raises(UsageError, match=r"the users of the cluster would have 786,433 bytes; 786,432 are"):
        session.replace_text("users", lambda before: "x" * (MOST_TEXT_BYTES - 1) + "ß")
    texts = eventually(lambda: len(place.open().view.texts) == 3 and place.open().view.texts)
    assert {(len(each.data), each.version) for each in texts.values()} == {(MOST_TEXT_BYTES, 0)}


def test_what_a_change_of_a_text_raises_changes_nothing(place):
    coordinator = place.open()
    session = register(coordinator, 1)
    with pytest.raises(ZeroDivisionError):
        session.replace_text("users", lambda before: str(1 / 0))
    session.replace_text("acls", lambda before: "later")
    eventually(lambda: dict(coordinator.view.texts) == {"acls": ("later", 0)})


def test_a_node_that_was_taken_for_dead_changes_no_text(place):
    coordinator = place.open()
    session = register(coordinator, 1)
    register(coordinator, 1)
    with pytest.raises(FencedError):
        session.replace_text("users", lambda before: "x")


def test_one_node_is_the_controller(place):
    coordinators = [place.open() for _ in range(4)]
    sessions = [register(each, at) for at, each in enumerate(coordinators)]
    for epoch in range(1, 4):
        found = _at_once(lambda at: sessions[at].try_to_control(), len(sessions))
        (at,) = [at for at, control in enumerate(found) if control is not None]
        assert found[at].epoch == epoch
        seat = eventually(lambda: coordinators[0].view.controller)
        assert seat == (sessions[at].registration.member, epoch)
        found[at].resign()
        eventually(lambda: coordinators[0].view.controller is None)
        with pytest.raises(FencedError):
            found[at].resign()


def test_an_earlier_controller_changes_nothing(place):
    from logstore.replica.coordination import layout
    from logstore.replica.coordination.tree import Delete

    here, there = place.open(), place.open()
    first = register(here, 1).try_to_control()
    create_topic(first)
    state = here.read_state(("t", 0))
    assert there._tree.commit([Delete(layout.CONTROLLER)]) is None  # as when its session ends
    session = register(there, 2)
    second = session.try_to_control()
    eventually(lambda: here.view.controller and here.view.controller.epoch == 2)
    led = elected(state, Member(1, 1))
    for use in (
        lambda: first.change({("t", 0): led}),
        lambda: create_topic(first, "u"),
        lambda: first.delete_topic("t"),
        lambda: first.configure_topic("t", dict),
        first.resign,
    ):
        with pytest.raises(
            FencedError, match="controller epoch 1 is over; node 2 is the controller, in epoch 2"
        ):
            use()
    assert there.read_state(("t", 0)) == state
    assert second.change({("t", 0): led})["t", 0].is_stored
    eventually(lambda: there.view.controller == (session.registration.member, 2))


def test_a_node_that_leaves_is_not_the_controller_any_more(place):
    here, there = place.open(), place.open()
    session = register(here, 1)
    session.try_to_control()
    assert register(there, 2).try_to_control() is None
    session.close()
    eventually(lambda: there.view.controller is None)


# Races


def test_of_those_who_change_a_state_at_once_one_succeeds(place):
    """Threads of three coordinators; what they have done adds up."""
    coordinators = [place.open() for _ in range(3)]
    sessions = [register(each, at) for at, each in enumerate(coordinators)]
    create_topic(sessions[0].try_to_control())
    told = Told(coordinators[1])

    def increase(at):
        done = 0
        session, coordinator = sessions[at % 3], coordinators[at % 3]
        state = coordinator.read_state(("t", 0))
        for _ in range(10):
            (outcome,) = session.propose({("t", 0): elected(state, session.registration.member)}).values()
            done += outcome.is_stored
            state = outcome.state
        return done

    done = sum(_at_once(increase, 6))
    state = coordinators[0].read_state(("t", 0))
    assert state.version == state.leader_epoch == done >= 10
    eventually(lambda: told.view and told.view.partitions.get(("t", 0)) == state)
    versions = [change.view.partitions["t", 0].version for change in told.changes if change.partitions]
    assert versions == sorted(set(versions))


def test_of_those_who_register_a_node_at_once_one_succeeds(place):
    coordinators = [place.open() for _ in range(4)]

    def begin(at):
        try:
            return register(coordinators[at], 1, Disk(f"disk {at}"))
        except LockedError:
            return None

    (session,) = [each for each in _at_once(begin, 4) if each is not None]
    assert session.has_lease
    view = eventually(lambda: coordinators[0].view.registrations)
    assert view == {1: session.registration}


def _at_once(run, count):
    """What ``run`` returns for each number, in a thread for each."""
    results = [None] * count
    errors = []
    ready = threading.Barrier(count)

    def go(at):
        try:
            ready.wait()
            results[at] = run(at)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return results


# Watching


def test_a_watcher_is_told_everything_and_then_each_change(place):
    here, there = place.open(), place.open()
    session = register(here, 1)
    control = session.try_to_control()
    create_topic(control, "a")
    eventually(lambda: there.view.topics and there.view.controller and there.view.living)
    told = Told(there)
    eventually(lambda: told.changes)
    first = told.changes[0]
    assert first == (there.view, True, True, {"a"}, {("a", 0)}, set())

    state = here.read_state(("a", 0))
    session.propose({("a", 0): elected(state, Member(1, 1))})
    eventually(lambda: told.view.partitions["a", 0].version == 1)
    assert told.changes[1] == (told.view, False, False, set(), {("a", 0)}, set())
    create_topic(control, "b")
    eventually(lambda: ("b", 0) in told.view.partitions)
    control.delete_topic("a")
    eventually(lambda: "a" not in told.view.topics)
    assert any(change.topics == {"a"} and ("a", 0) in change.partitions for change in told.changes)
    told.end()
    before = len(told.changes)
    session.close()
    eventually(lambda: not there.view.living)
    assert len(told.changes) == before


def test_a_watcher_that_fails_is_told_the_next_change(place):
    coordinator = place.open()
    seen = []

    def fail(change):
        seen.append(change)
        raise ValueError("no")

    coordinator.watch(fail)
    eventually(lambda: len(seen) == 1)
    register(coordinator, 1)
    eventually(lambda: len(seen) > 1)


def test_damaged_texts_are_left_out_and_the_rest_is_told(place):
    from logstore.replica.coordination import layout
    from logstore.replica.coordination.tree import Create, Write

    here, there = place.open(), place.open()
    control = register(here, 1).try_to_control()
    create_topic(control, replicas=[(1,), (1,)])
    eventually(lambda: len(there.view.partitions) == 2)
    assert here._tree.commit([Write(layout.state_path(("t", 0)), '{"isr":')]) is None
    eventually(lambda: set(there.view.partitions) == {("t", 1)})
    with pytest.raises(CorruptionError, match="partitions/0/state"):
        there.read_state(("t", 0))
    create_topic(control, "u")
    assert here._tree.commit([Write(layout.topic_path("t"), "{")]) is None
    assert here._tree.commit([Create(f"{layout.IDS}/seven", "{}")]) is None
    eventually(lambda: set(there.view.partitions) == {("u", 0)})
    assert set(there.view.topics) == {"u"}
    create_topic(control, "v")
    eventually(lambda: set(there.view.topics) == {"u", "v"})
