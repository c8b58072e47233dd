"""Random requests of administrators."""

from __future__ import annotations

from typing import Any

from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import describe_topic_partitions, metadata
from logstore.wire.messages.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from tests.interop.drawn.choices import Choices
from tests.interop.request_steps import LOST, Party, Step


class Topics(Choices):
    """Topics and their settings."""

    def _metadata(self) -> Step:
        version, topic = self._version(ApiKey.METADATA, 4), self._topic()
        if self._seldom(0.5):
            names = tuple(sorted({self._topic(), self._topic()}))
            cursor = self._one(None, None, (topic, self._part()))
            most = self._one(2000, 1, 2, 0, -1)

            def page(side: Party) -> dict[str, Any]:
                return {
                    "topics": tuple(describe_topic_partitions.TopicWanted(each) for each in names),
                    "response_partition_limit": most,
                    "cursor": cursor and describe_topic_partitions.Cursor(*cursor),
                }

            return Step(f"{names} {most} {cursor}", ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, page)
        by_id = version >= 12 and self._seldom(0.5)

        def fields(side: Party) -> dict[str, Any]:
            wanted = {"name": None, "topic_id": side.ids.get(topic, LOST)} if by_id else {"name": topic}
            quiet = {"allow_auto_topic_creation": False} if version >= 4 else {}
            return {"topics": (metadata.TopicWanted(**wanted),), **quiet}

        return Step(f"{topic} {by_id}", ApiKey.METADATA, version, fields)

    def _administer(self) -> Step:
        name = self._named(self._one("made", "made2"))
        validate = {"validate_only": self._seldom(0.2)}
        config = self._one(
            ("retention.ms", self._one("1", "-1", "-2", "x", "", None, "9223372036854775808", " 7", "1.0")),
            (
                "cleanup.policy",
                self._one(
                    "compact",
                    "delete",
                    "compact,delete",
                    "",
                    "delete,delete",
                    "x",
                    " compact , delete ",
                    "DELETE",
                ),
            ),
            ("compression.type", self._one("producer", "gzip", "lz4", "GZIP", "uncompressed", "", None)),
            ("compression.gzip.level", self._one("-1", "0", "1", "9", "10")),
            ("compression.zstd.level", self._one("3", "-131072", "23", "22")),
            ("compression.lz4.level", self._one("0", "1", "17", "18")),
            ("min.cleanable.dirty.ratio", self._one("0.5", "-1", "2", "1e-3", "0,5")),
            ("unclean.leader.election.enable", self._one("true", "TRUE", "1", "yes", "")),
            ("segment.bytes", self._one("1048576", "2147483648")),
            ("max.message.bytes", self._one("0", "-1", "1000")),
            ("min.insync.replicas", self._one("1", "0", "2")),
            ("message.timestamp.type", self._one("CreateTime", "LogAppendTime", "logappendtime")),
            ("message.timestamp.after.max.ms", self._one("0", "-1", "5")),
            ("flush.messages", self._one("0", "1")),
            ("index.interval.bytes", self._one("0", "-1", "4096")),
            ("segment.index.bytes", self._one("3", "4", "1024")),
            ("segment.jitter.ms", self._one("0", "-1")),
            ("segment.ms", self._one("0", "1")),
            ("delete.retention.ms", self._one("-1", "0")),
            ("file.delete.delay.ms", self._one("-1", "0")),
            ("max.compaction.lag.ms", self._one("0", "1")),
            ("min.compaction.lag.ms", self._one("-1", "0", "10")),
            ("preallocate", self._one("true", "x")),
            ("message.format.version", "3.0"),
            ("no.such", "1"),
            ("", ""),
        )
        match self._one("create", "create", "delete", "grow", "change", "change", "change", "described"):
            case "create":
                count, factor = self._mostly(self._one(1, 2, 3), -1, 0, -2, 10_001), self._mostly(1, -1, 0, 2)
                configs = (
                    (create_topics.Config(*config),)
                    if self._seldom(0.5) and (count, factor) == (1, 1)
                    else ()
                )
                topic = create_topics.Topic(
                    self._mostly(name, "a b", "", ".", "..", "x" * 250)
                    if (count, factor) == (1, 1)
                    else name,
                    count,
                    factor,
                    (),
                    configs,
                )
                topics = (topic,)
                return Step(
                    f"{topics} {validate}",
                    ApiKey.CREATE_TOPICS,
                    self._version(ApiKey.CREATE_TOPICS),
                    lambda side: {"topics": topics, **validate},
                )
            case "delete":
                name = self._mostly(self._named("made2"), self._named("nope"), "")
                gone = (delete_topics.Topic(name),)
                return Step(name, ApiKey.DELETE_TOPICS, 6, lambda side: {"topics": gone, "timeout_ms": 5000})
            case "grow":
                name = self._mostly(self._named("made"), self._named("made2"), self._named("nope"), "")
                more = create_partitions.Topic(name, self._one(0, -1, 1, 2, 3, 4), None)
                return Step(
                    f"{more} {validate}",
                    ApiKey.CREATE_PARTITIONS,
                    self._version(ApiKey.CREATE_PARTITIONS),
                    lambda side: {"topics": (more,), "timeout_ms": 5000, **validate},
                )
            case "change":
                name = self._named("made")
                configs = (
                    incremental_alter_configs.Config(config[0], self._one(0, 0, 0, 1, 2, 3), config[1]),
                )
                resource = incremental_alter_configs.Resource(2, name, configs)
                return Step(
                    f"{resource} {validate}",
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    self._version(ApiKey.INCREMENTAL_ALTER_CONFIGS),
                    lambda side: {"resources": (resource,), **validate},
                )
            case _:
                one = describe_configs.Resource(
                    self._mostly(2, 0, 3), name, self._one(None, (), (config[0],), (config[0], config[0]))
                )
                return Step(
                    f"{one}",
                    ApiKey.DESCRIBE_CONFIGS,
                    self._version(ApiKey.DESCRIBE_CONFIGS),
                    lambda side: {"resources": (one,), "include_synonyms": True},
                )
