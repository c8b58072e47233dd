"""Kafka's own assignors, to compare with: one Java process answers everything that is asked at once."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore.clients.assignors import Subscription
from logstore.format.messages.consumer_protocol import decode_assignment, ungrouped
from logstore.model import TopicPartition
from tests.clients.assignors.world import Group
from tests.interop.kafka import require_kafka, run_java

_PROGRAM = Path(__file__).with_name("Assignors.java")


class Encoded(NamedTuple):
    """What Kafka's client makes of one subscription."""

    subscriptions: list[bytes]
    """By version; and so below."""
    assignments: list[bytes]
    """Of the owned partitions and the user data."""
    user_data: dict[str, tuple[bytes | None, bytes]]
    """By the name of the sticky assignors: before the first assignment, and after that of what is owned."""


def ask_java(
    subscriptions: Iterable[Subscription], groups: Iterable[Group]
) -> tuple[list[Encoded], list[dict[str, set[TopicPartition]] | None]]:
    """What Kafka's client makes of each subscription, and assigns to each group; None where it fails."""
    require_kafka()
    asked = {
        "encode": [_subscription(each) for each in subscriptions],
        "assign": [
            {
                "assignor": assignor,
                "counts": counts,
                "members": {
                    member: {"metadata": _text(each.encode()), "instance_id": each.instance_id}
                    for member, each in members.items()
                },
                "rounds": rounds,
            }
            for assignor, counts, members, rounds in groups
        ],
    }
    done = run_java(str(_PROGRAM), stdin=json.dumps(asked))
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    assigned = [
        None if "error" in each else {member: _partitions(_bytes(data)) for member, data in each.items()}
        for each in answer["assigned"]
    ]
    return [_encoded(each) for each in answer["encoded"]], assigned


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "topics": sorted(subscription.topics, reverse=True),
        "owned": subscription.owned,
        "generation": subscription.generation,
        "user_data": _text(subscription.user_data),
        "rack": subscription.rack,
    }


def _encoded(answer: Mapping[str, Any]) -> Encoded:
    return Encoded(
        [_bytes(answer[f"subscription{version}"]) for version in range(4)],
        [_bytes(answer[f"assignment{version}"]) for version in range(4)],
        {
            name: (_bytes(answer[name]["before"]), _bytes(answer[name]["after"]))
            for name in ("sticky", "cooperative-sticky")
        },
    )


def _partitions(data: bytes) -> set[TopicPartition]:
    listed: Sequence[TopicPartition] = ungrouped(decode_assignment(data).assigned_partitions)
    assert len(listed) == len(set(listed))
    return set(listed)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> Any:
    return None if text is None else base64.b64decode(text)
