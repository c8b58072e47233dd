"""What answers may take together: whoever comes gets half of what is free, and gives it back."""

from __future__ import annotations

from logstore.wire.handlers.answer_memory import AnswerMemory, AnswerRoom

KIB = 1 << 10
MIB = 1 << 20


def test_each_answer_gets_half_of_what_is_free_and_at_least_a_little():
    memory = AnswerMemory(8 * MIB)
    rooms = [AnswerRoom(memory) for _ in range(8)]
    given = [room.take(50 * MIB, 1)[0] for room in rooms]
    assert given == [4 * MIB, 2 * MIB, MIB, 512 * KIB, *[256 * KIB] * 4]
    assert memory.lent_bytes == sum(given)
    for room in rooms:
        room.hold(0)
    assert memory.lent_bytes == 0
    assert rooms[0].take(50 * KIB, 1) == (50 * KIB, 1)


def test_without_any_memory_fetches_go_on_in_small_pieces():
    assert AnswerRoom(AnswerMemory(0)).take(MIB, 1) == (256 * KIB, 1)


def test_an_answer_counts_as_large_as_it_is_until_it_was_taken():
    memory = AnswerMemory(8 * MIB)
    room = AnswerRoom(memory)
    room.take(3 * MIB, 1)
    room.hold(MIB)
    assert memory.lent_bytes == MIB
    room.hold(0)
    room.hold(0)
    assert memory.lent_bytes == 0
    room.hold(2 * MIB)  # the answer of another request
    room.take(MIB, 1)
    assert memory.lent_bytes == MIB
    room.hold(KIB)
    assert memory.lent_bytes == 0


def test_who_waits_counts_with_what_may_have_been_read_for_him():
    memory = AnswerMemory(8 * MIB)
    idle, patient = AnswerRoom(memory), AnswerRoom(memory)
    idle.take(3 * MIB, 1)
    idle.wait()
    assert memory.lent_bytes == 1
    patient.take(3 * MIB, 2 * MIB)
    patient.wait()
    assert memory.lent_bytes == 2 * MIB + 1
    patient.hold(2 * MIB)
    assert memory.lent_bytes == 2 * MIB + 1


def test_who_gets_less_than_he_wants_does_not_wait_for_as_much():
    memory = AnswerMemory(2 * MIB)
    assert AnswerRoom(memory).take(4 * MIB, 3 * MIB) == (MIB, 1)
    assert AnswerRoom(memory).take(256 * KIB, 100 * KIB) == (256 * KIB, 100 * KIB)
    assert AnswerRoom(memory).take(-1, -1) == (-1, -1)
