"""The page of the settings: the fields of :class:`TopicConfig` and :class:`StoreConfig`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from logstore import config
from logstore.config import UNLIMITED, StoreConfig, TopicConfig
from tests.reference_pages.docstrings import fill, inline, parse, render, summary
from tests.reference_pages.reference import MADE_BY, Linker, section_title
from tests.reference_pages.source import Member, module, symbol

INTRODUCTION = """
# Settings

{made_by}

A topic's settings are a `TopicConfig`, those of an open store a `StoreConfig`. Both are immutable. A wrong
name or value raises [`InvalidConfigError`](reference/errors.md#invalidconfigerror), which names the setting.

```python
import logstore
from logstore import StoreConfig, TopicConfig

week_ms = 7 * 24 * 60 * 60 * 1000
config = StoreConfig(linger_ms=20, topic=TopicConfig(compression_type="zstd"))

with logstore.open("data", config=config) as store:
    store.create_topic("orders")  # has the store's settings for new topics: zstd
    events = store.create_topic("events", config=TopicConfig(retention_ms=week_ms))
    events.configure(segment_bytes=16 * 1024 * 1024)  # the other settings stay
    print(events.config.retention_ms, events.config.segment_bytes)
```

* **Topic settings are stored** in the store's `topics.json`, and the next open finds them there.
  `topic.config` shows them, `topic.configure(...)` changes them. `require_topic(name, config=...)` raises
  `UsageError` if the topic has other settings. `StoreConfig.topic` counts only when a topic is created.
* **Store settings are not stored.** Give them to each `logstore.open`.
* **A log opened alone** (`Log.open`) stores no settings. Give it `config` and `store_config` each time.

Names are Kafka's with underscores for dots, and values have Kafka's units: `_ms` is milliseconds, `_bytes` is
bytes. `logstore.config.UNLIMITED` is 2^63 - 1, Kafka's spelling of "never" and "no limit". Where a default
differs from Kafka's (4.0), the entry says so and why. Text in Kafka's spelling, such as a properties file,
is read by [`TopicConfig.from_properties`](#topicconfigfrom_properties).
""".strip()

_OF_PRODUCER = {"linger_ms": "linger.ms", "batch_bytes": "batch.size"}
_OURS = {
    "acks_all_durable",
    "message_timestamp_unit_check",
    "topic",
    "max_open_segments",
    "batch_cache_bytes",
    "scrub_interval_ms",
    "scrub_bytes_per_second",
}
"""Settings that Kafka does not have."""

_KAFKA = "Kafka: "


def settings_page() -> str:
    return "\n\n".join(_blocks()) + "\n"


def _blocks() -> Iterator[str]:
    yield INTRODUCTION.format(made_by=MADE_BY)
    for kind, title in ((TopicConfig, "Topics"), (StoreConfig, "Stores")):
        found = symbol("logstore.config", kind.__name__)
        link = Linker("settings", kind.__name__, prefix="reference/")
        ranges = config._TOPIC_RANGES if kind is TopicConfig else config._STORE_RANGES
        limits = {name: (low, high) for name, low, high in ranges}
        choices = _choices(kind.__name__)
        fields = [each for each in found.members if each.kind == "field"]
        yield f"## {title}"
        yield f"The fields of `{kind.__name__}`."
        rows = [
            f"| [`{each.name}`](#{each.name}) | {_short(each.name, _default(kind, each.name))} "
            f"| {inline(summary(each.doc), link)} |"
            for each in fields
        ]
        yield "\n".join(["| Setting | Default | Meaning |", "|---|---|---|", *rows])
        section = ""
        for each in fields:
            if each.section != section:
                section = each.section
                yield f"### {section_title(title, section)}"
            yield f"#### {each.name}"
            yield fill(_facts(each.name, _default(kind, each.name), limits, choices))
            yield _meaning(each, link)
        methods = [each for each in found.members if each.kind == "method"]
        if methods:
            yield f"### {title}: methods"
        for each in methods:
            yield f"#### {kind.__name__}.{each.name}"
            yield f"```python\n{each.signature}\n```"
            yield render(each.doc, link)


def _meaning(member: Member, link: Linker) -> str:
    paragraphs = []
    for paragraph in parse(member.doc).paragraphs:
        text = " ".join(paragraph.split())
        is_kafka = text.startswith(_KAFKA)
        text = inline(text.removeprefix(_KAFKA), link)
        paragraphs.append(fill(f"**Kafka's default:** {text}" if is_kafka else text))
    return "\n\n".join(paragraphs)


def _default(kind: type[Any], name: str) -> Any:
    return getattr(kind(), name)


def _choices(class_name: str) -> dict[str, set[str]]:
    """The setting and the set of each ``check_choice(self, "setting", SET)`` in the class."""
    (node,) = (
        each
        for each in module("logstore.config").tree.body
        if isinstance(each, ast.ClassDef) and each.name == class_name
    )
    return {
        ast.literal_eval(call.args[1]): getattr(config, ast.unparse(call.args[2]))
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "check_choice"
    }


def _facts(name: str, default: Any, limits: dict[str, tuple[int, int]], choices: dict[str, set[str]]) -> str:
    if name in _OF_PRODUCER:
        facts = [f"`{_OF_PRODUCER[name]}` of Kafka's producer"]
    elif name in _OURS:
        facts = ["not in Kafka"]
    else:
        facts = [f"`{name.replace('_', '.')}`"]
    facts.append(f"default {_long(name, default)}")
    if name in limits:
        low, high = limits[name]
        facts.append(f"from {low} to {'`UNLIMITED`' if high == UNLIMITED else high}")
    elif name in choices:
        shown = (f"`{choice}`" if choice else "`''`" for choice in sorted(choices[name]))
        facts.append("one of " + ", ".join(shown))
    elif isinstance(default, bool):
        facts.append("`True` or `False`")
    return " · ".join(facts)


def _long(name: str, value: Any) -> str:
    short, exact = _short(name, value), f"`{value!r}`"
    return short if short == exact or short.startswith("`") else f"{exact} ({short})"


def _short(name: str, value: Any) -> str:
    """A value for people: 128 MiB, 7 days."""
    if isinstance(value, TopicConfig):
        return "`TopicConfig()`"
    if value == UNLIMITED:
        return "`UNLIMITED`"
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return f"`{value!r}`"
    units: tuple[tuple[int, str], ...] = ()
    if name.endswith("_ms"):
        units = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
    elif "bytes" in name or name == "log_cleaner_dedupe_buffer_size":
        units = ((1024 * 1024, "MiB"), (1024, "KiB"))
    for size, unit in units:
        if value >= size and value % size == 0:
            count = value // size
            plural = "s" if count > 1 and not unit.endswith("iB") else ""
            return f"{count} {unit}{plural}"
    return f"`{value!r}`"
