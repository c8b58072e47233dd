"""How far queues are, seen by a store that is open for reading only, beside the one that works."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.errors import ClosedError, CorruptionError
from logstore.format.names import SHARE_STATE_TOPIC
from tests.queues.conftest import World


def look(world):
    return logstore.open("/store", read_only=True, files=world.files, clock=world.clock)


def test_a_store_without_queues(world):
    with look(world) as watching:
        assert watching.queues() == []


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["accept", "release", "reject", "take", "append", "delete"]), max_size=20))
def test_it_sees_what_the_writer_says_but_for_workers(steps):
    world = World()
    world.extend(3)
    with world.queue(linger_ms=0, dead_letter_topic="dead") as queue, look(world) as watching:
        for step in steps:
            if step == "append":
                world.extend(2)
            elif step == "delete":
                world.log.delete_before(min(world.log.log_start_offset + 1, world.log.log_end_offset))
            else:
                for job in queue.poll(0, max_jobs=1):
                    if step != "take":
                        getattr(job, step)()
            (own,), (seen,) = world.store.queues(), watching.queues()
            assert (seen.group, seen.state, seen.workers) == (own.group, "Unknown", 0)
            assert (seen.taken_count, seen.waiting_count) == (0, own.taken_count + own.waiting_count)
            (mine,), (there,) = own.partitions, seen.partitions
            assert there[:2] == mine[:2], "where all is done"
            assert there.high_watermark == mine.high_watermark
    world.store.close()


def test_groups_come_and_go(world):
    world.extend(1)
    with look(world) as watching:
        for group in ("b", "a"):
            world.store.queue("jobs", group=group).close()
        assert [each.group for each in watching.queues()] == ["a", "b"]
        world.store.delete_queue("a")
        assert [each.group for each in watching.queues()] == ["b"]
        world.store.delete_topic("jobs")
        assert watching.queues() == []
    with pytest.raises(ClosedError):
        watching.queues()


@pytest.mark.damaged
def test_states_that_are_damaged(world):
    world.extend(1)
    world.queue().close()
    world.store.close()
    file = world.files.open(f"/store/{SHARE_STATE_TOPIC}-0/{0:020}.log", write=True)
    file.write_at(70, [b"damage"])
    with look(world) as watching, pytest.raises(CorruptionError):
        watching.queues()
