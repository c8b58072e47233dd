"""Settings as Kafka's protocol describes them: their names, values as text, types, and what they mean.

Knows the classes of settings by their fields alone; what a setting means is its docstring in the source.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from logstore.broker.requests import Setting, SettingKind
from logstore.config import TopicConfig

BROKER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "segment.bytes": "log.segment.bytes",
        "segment.ms": "log.roll.ms",
        "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.index.bytes": "log.index.size.max.bytes",
        "index.interval.bytes": "log.index.interval.bytes",
        "retention.ms": "log.retention.ms",
        "retention.bytes": "log.retention.bytes",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.type": "log.message.timestamp.type",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "preallocate": "log.preallocate",
    }
)
"""A topic's setting -> what a broker calls its default for new topics. The others have one name."""

LISTS: Final = frozenset({"cleanup.policy", "log.cleanup.policy"})
"""Settings whose value is a list, divided by commas."""

_INTS: Final = frozenset(
    {
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "segment_bytes",
        "segment_index_bytes",
        "index_interval_bytes",
        "max_message_bytes",
        "min_insync_replicas",
        "num_recovery_threads_per_data_dir",
        "log_cleaner_threads",
        "offsets_topic_num_partitions",
        "offsets_retention_minutes",
        "offset_metadata_max_bytes",
        "transaction_state_log_num_partitions",
        "transaction_max_timeout_ms",
        "transactional_id_expiration_ms",
        "share_coordinator_state_topic_num_partitions",
        "share_coordinator_snapshot_update_records_per_snapshot",
        "quota_window_num",
        "quota_window_size_seconds",
        "max_connections",
        "socket_request_max_bytes",
        "num_partitions",
        "fetch_max_bytes",
        "max_incremental_fetch_session_cache_slots",
        "max_request_partition_size_limit",
        "num_request_threads",
    }
)
"""Whole numbers of 32 bits. The others have 64."""

_ROLE: Final = re.compile(r":[a-z]+:`~?\.?([^`]+)`")


class _Declared(NamedTuple):
    """What is known of a setting without its value."""

    field: str
    name: str
    default: Any
    default_text: str
    kind: SettingKind


def settings_of(
    config: Any,
    *,
    as_brokers: bool = False,
    with_documentation: bool = False,
    for_new_topics: TopicConfig | None = None,
) -> tuple[Setting, ...]:
    """All settings of a configuration of this package, in the order of its fields. Those of its ``topic``, if
    it has one, come under the names of a broker's defaults.

    Args:
        as_brokers: use those names for a topic's own settings, too.
        for_new_topics: of a topic's settings: what new topics of the store have. A topic that has another
            value, or would not get the default today, has its own.
    """
    kind: Any = type(config)
    documentation = documentation_of(kind) if with_documentation else {}
    found: list[Setting] = []
    for each in _declared(kind):
        value = getattr(config, each.field)
        if isinstance(value, TopicConfig):
            found += settings_of(value, as_brokers=True, with_documentation=with_documentation)
            continue
        name = BROKER_NAMES.get(each.name, each.name) if as_brokers else each.name
        is_default = value == each.default
        text = each.default_text if is_default else _text_of(value)
        meaning = documentation.get(each.field)
        setting = Setting(name, text, is_default, each.kind, each.default_text, meaning)
        new = each.default if for_new_topics is None else getattr(for_new_topics, each.field)
        if new != each.default:
            setting = setting._replace(is_default=False, for_new_topics=_text_of(new))
        found.append(setting)
    return tuple(found)


@lru_cache
def _declared(cls: Any) -> tuple[_Declared, ...]:
    return tuple(
        _Declared(
            field.name,
            field.name.replace("_", "."),
            field.default,
            _text_of(field.default),
            _kind_of(field.name, field.default),
        )
        for field in fields(cls)
    )


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind_of(field: str, default: Any) -> SettingKind:
    if isinstance(default, bool):
        return SettingKind.BOOLEAN
    if isinstance(default, float):
        return SettingKind.DOUBLE
    if isinstance(default, int):
        return SettingKind.INT if field in _INTS else SettingKind.LONG
    return SettingKind.LIST if field.replace("_", ".") in LISTS else SettingKind.STRING


@lru_cache
def documentation_of(cls: Any) -> Mapping[str, str]:
    """Field -> what it means, as plain text. Empty where the source is not installed.

    Cost: reads and parses the module's source, once.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, SyntaxError):
        return {}
    bodies = (each.body for each in tree.body if isinstance(each, ast.ClassDef) and each.name == cls.__name__)
    body: list[ast.stmt] = next(bodies, [])
    found = {}
    for field, text in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = _plain(str(text.value.value))
    return MappingProxyType(found)


def _plain(docstring: str) -> str:
    """Without the marks of a docstring."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    text = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    return _ROLE.sub(r"\1", text).replace("``", "")
