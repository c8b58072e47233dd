"""The coordinator against Kafka's classes: what its assignors assign, and which names RE2/J matches."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.patterns import Pattern
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.targets import assign
from logstore.errors import UsageError
from tests.broker.consumer_groups.stage import Topic
from tests.interop.kafka import require_kafka, run_java
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.interop

_PROGRAM = Path(__file__).with_name("ServerSide.java")
_NAMES = ["", "a", "ab", "abba", "a-b", "A_B", "b.a", "0", "a1", "orders", "__x", "-"]
_PIECES = [
    *("a", "b", "A", "0", "_", ".", "-", r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B"),
    *("^", "$", r"\A", r"\z", "[ab]", "[^a]", "[a-z]", "[]a]", "[a-]", "[[:alpha:]]", "[[:^digit:]_]"),
    *(
        "|",
        "(",
        ")",
        "(?:",
        "(?i:",
        "(?i)",
        "(?s-i:",
        "(?P<n>",
        "(?<m>",
        "*",
        "+",
        "?",
        "{2}",
        "{1,}",
        "{0,2}",
    ),
    *("*?", "{,2}", "{", "}", r"\Q", r"\E", r"\x61", r"\x{62}", r"\n", "[", "]", "(?=", r"\1", "(?", ","),
]


def ask_java(assign: list[Any], match: list[Any]) -> dict[str, Any]:
    require_kafka()
    done = run_java(str(_PROGRAM), stdin=json.dumps({"assign": assign, "match": match}))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def drawn_group(chance: random.Random) -> tuple[dict[str, int], Group]:
    """Topics 1 to 4, and members with targets that an earlier assignment gave them."""
    counts = {str(number): chance.randint(1, 6) for number in range(1, chance.randint(2, 5))}
    same = frozenset(chance.sample(sorted(counts), chance.randint(1, len(counts))))
    group = Group("g")
    assignor = chance.choice(["range", "uniform"])
    is_equal = chance.random() < 0.5
    for number in range(chance.randint(1, 6)):
        topics = (
            same if is_equal else frozenset(chance.sample(sorted(counts), chance.randint(1, len(counts))))
        )
        instance_id = f"i{9 - number}" if chance.random() < 0.3 else None
        group.put(Member(f"m{number}", instance_id, topics=topics, assignor=assignor))
    if chance.random() < 0.7:
        assign(group, topics_of(counts), 0)
        for member_id in list(group.members):
            if chance.random() < 0.3 and len(group.members) > 1:
                group.remove(member_id)
        if chance.random() < 0.5:
            group.put(Member("new", topics=same, assignor=assignor))
    return counts, group


def topics_of(counts: dict[str, int]) -> dict[str, Topic]:
    return {name: Topic(uuid.UUID(int=int(name)), count) for name, count in counts.items()}


def shown(partitions: frozenset[TopicIdPartition]) -> list[list[int]]:
    return sorted([each.topic_id.int, each.partition] for each in partitions)


def as_asked(counts: dict[str, int], group: Group) -> dict[str, Any]:
    return {
        "assignor": group.preferred_assignor(["uniform", "range"]),
        "counts": counts,
        "members": {
            member.member_id: {
                "instance_id": member.instance_id,
                "topics": sorted(member.topics),
                "target": shown(group.target_of(member.member_id)),
            }
            for member in group.members.values()
        },
    }


def spread(sizes: list[int]) -> int:
    return sum(size * size for size in sizes)


def test_what_the_assignors_assign() -> None:
    """``range`` is the same. ``uniform`` is as even, or more so; if it is as even, it keeps as much. 4 s."""
    chance = random.Random(seed_of_turn())
    groups = [drawn_group(chance) for _ in range(400)]
    asked = [as_asked(*each) for each in groups]
    for (counts, group), question, answer in zip(groups, asked, ask_java(asked, [])["assigned"], strict=True):
        had = dict(group.targets)
        assign(group, topics_of(counts), 0)
        ours = {member_id: shown(group.target_of(member_id)) for member_id in group.members}
        theirs = {member_id: sorted(answer.get(member_id, [])) for member_id in group.members}
        assert sum(map(len, ours.values())) == sum(map(len, theirs.values()))
        if question["assignor"] == "range":
            assert ours == theirs, question
            continue
        evenness = (
            spread([len(each) for each in ours.values()]),
            spread([len(each) for each in theirs.values()]),
        )
        assert evenness[0] <= evenness[1], question
        if evenness[0] == evenness[1]:
            assert kept(had, ours) >= kept(had, theirs), question


def kept(had: dict[str, frozenset[TopicIdPartition]], has: dict[str, list[list[int]]]) -> int:
    before = {(member_id, *each) for member_id, target in had.items() for each in shown(target)}
    return len(before & {(member_id, *each) for member_id, target in has.items() for each in target})


def test_which_names_match() -> None:
    """Both take the same expressions, and each matches the same names. 3 s."""
    chance = random.Random(seed_of_turn())
    texts = ["".join(chance.choices(_PIECES, k=chance.randint(1, 6))) for _ in range(4_000)]
    answers = ask_java([], [{"pattern": text, "names": _NAMES} for text in texts])["matched"]
    taken = 0
    for text, answer in zip(texts, answers, strict=True):
        try:
            pattern = Pattern(text)
        except UsageError:
            assert answer is None, text
            continue
        taken += 1
        assert [pattern.matches(name) for name in _NAMES] == answer, text
    assert taken > 1_000
