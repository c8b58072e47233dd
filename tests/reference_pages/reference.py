"""The reference of the public API, one page for each subject."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.reference_pages.docstrings import fill, inline, parse, render, summary
from tests.reference_pages.source import Member, Symbol, module, symbol

MADE_BY = "<!-- Written by `make docs` from the docstrings in src/logstore: change those, not this page. -->"

PAGES: dict[str, tuple[str, str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "store": (
        "Stores",
        "A store is a directory of topics. `logstore.open` opens one.",
        (
            ("logstore.store", ("open_store", "Store")),
            ("logstore.clients.producer", ("Producer", "Partitioner")),
            ("logstore.clients.settings", ("ProducerConfig", "ConsumerConfig", "QueueConfig")),
            ("logstore.clients.outgoing", ("Sent", "Delivered", "OnDelivery")),
            ("logstore.clients.consumer", ("Consumer", "OnRebalance")),
            ("logstore.clients.polling", ("Polling",)),
            ("logstore.clients.quotas", ("StoreQuotas",)),
            ("logstore.logdir.quotas", ("QuotaEntity", "QuotaName", "DEFAULT")),
            ("logstore.broker.quotas.precedence", ("Applied",)),
            ("logstore.clients.transactions.transaction", ("Transaction",)),
            ("logstore.clients.transactions.status", ("TransactionStatus",)),
            (
                "logstore.clients.transform",
                ("Transform", "TransformReport", "TransformFunction", "Result"),
            ),
            ("logstore.clients.queues.queue", ("Queue", "WorkReport")),
            ("logstore.clients.queues.job", ("Job", "Delay")),
            ("logstore.clients.queues.status", ("QueueStatus",)),
            ("logstore.broker.share.requests", ("SharePartitionState",)),
            (
                "logstore.clients.interceptors",
                ("ProducerRecord", "ProducerInterceptor", "ConsumerInterceptor"),
            ),
            ("logstore.clients.assignors.assignor", ("Assignor", "Subscription", "RebalanceProtocol")),
            ("logstore.clients.offsets", ("Offsets", "PartitionName", "Committable")),
            ("logstore.clients.groups.groups", ("Groups",)),
            ("logstore.clients.groups.status", ("GroupStatus", "GroupMember")),
            ("logstore.clients.groups.resetting", ("ResetTo", "OffsetReset")),
            ("logstore.logdir.cleaner", ("LogCleaner",)),
            ("logstore.logdir.cleaning", ("CleanerStatus",)),
            ("logstore.logdir.open_logs", ("OpenProgress",)),
            ("logstore.exchange.handover", ("handover",)),
            ("logstore.exchange.report", ("HandoverReport", "HandedPartition", "HandoverProgress")),
            ("logstore.wire.listener.listener", ("Listener",)),
            ("logstore.wire.handlers.settings", ("ListenerConfig",)),
            ("logstore.build", ("build_info", "BuildInfo")),
        ),
    ),
    "topic": (
        "Topics",
        "A topic is a sequence of logs, one for each partition. Get one from a [store](store.md): "
        "`store[name]`, `store.create_topic(name)` or `store.require_topic(name)`.",
        (
            ("logstore.topic", ("Topic",)),
            (
                "logstore.serializing",
                (
                    "SerializedTopic",
                    "SerializedRecord",
                    "Serializer",
                    "SerializerChoice",
                    "EncoderChoice",
                    "DecoderChoice",
                ),
            ),
            ("logstore.serializing", ("BYTES", "TEXT", "JSON")),
            ("logstore.logdir.joining", ("Start", "Stop", "Order")),
        ),
    ),
    "log": (
        "Logs",
        "A log holds the records of one partition. Get one from a [topic](topic.md): `topic[0]`. "
        "`Log.open` opens a partition's directory without a store. The logs of a read-only store have the "
        "methods that read and check.",
        (
            ("logstore.partition.log", ("Log",)),
            ("logstore.partition.reading.latest", ("LatestView",)),
            ("logstore.partition.writing.waits", ("Wait", "Done")),
        ),
    ),
    "connected": (
        "Connecting",
        "`logstore.connect` gives the clients of a [store](store.md) elsewhere, over Kafka's protocol. "
        "[Connecting](../connect.md) shows how.",
        (
            ("logstore.connected", ("connect", "RemoteStore")),
            ("logstore.sharing", ("open_or_connect", "SharedStore")),
            ("logstore.clients.elsewhere.offsets", ("RemoteOffsets",)),
            ("logstore.clients.elsewhere.groups", ("RemoteGroups",)),
            ("logstore.wire.remote.connections.settings", ("RemoteConfig", "Sasl")),
        ),
    ),
    "bridge": (
        "Bridges",
        "`logstore.bridge` copies topics between a [store](store.md) and a cluster, which "
        "[`logstore.connect`](connected.md) reaches. [A bridge to a cluster](../bridge.md) shows how.",
        (
            ("logstore.bridge.pull_topics", ("pull", "PullBridge")),
            ("logstore.bridge.push_topics", ("push", "PushBridge")),
            ("logstore.bridge.progress", ("PullProgress", "PushProgress", "PartitionProgress")),
        ),
    ),
    "replica": (
        "Replication",
        "`logstore.replica` copies between [stores](store.md) as they are used. "
        "[Replication](../replication.md) shows how.",
        (
            ("logstore.replica.node.node", ("Node",)),
            ("logstore.replica.standby", ("follow", "Standby")),
            ("logstore.replica.coordination.files", ("FileCoordinator",)),
            ("logstore.replica.coordination.zookeeper", ("ZooKeeperCoordinator",)),
            ("logstore.replica.leaving", ("leave_cluster",)),
        ),
    ),
    "asyncio": (
        "asyncio",
        "`logstore.aio` has the calls of [stores](store.md), [topics](topic.md) and [logs](log.md) for event "
        "loops. `logstore.aio.open` opens a store. [asyncio](../aio.md) shows how.",
        (
            ("logstore.aio.store", ("open_store", "Opening", "AsyncStore")),
            ("logstore.aio.topic", ("AsyncTopic",)),
            ("logstore.aio.log", ("AsyncLog",)),
            ("logstore.aio.records", ("AsyncRecords",)),
            ("logstore.aio.producer", ("AsyncProducer", "AsyncSent")),
            ("logstore.aio.consumer", ("AsyncConsumer",)),
            ("logstore.aio.queue", ("AsyncQueue",)),
            ("logstore.aio.groups", ("AsyncGroups",)),
        ),
    ),
    "records-and-values": (
        "Records and values",
        "What calls take and return.",
        (
            ("logstore.model", ("Record", "NewRecord", "TimestampType", "TopicPartition", "Isolation")),
            ("logstore.model", ("ProducerIdentity", "OffsetAndTimestamp", "AbortedTransaction")),
            ("logstore.model", ("OffsetAndMetadata",)),
            ("logstore.model", ("Role", "AppendOrigin", "Bytes", "Header", "Moment")),
            ("logstore.partition.encoding.rows", ("NewRecords",)),
            ("logstore.partition.reading.times", ("OffsetOrTime",)),
            ("logstore.partition.reading.fetched", ("Fetched",)),
            ("logstore.partition.writing.growth", ("AppendResult",)),
            ("logstore.format.checkpoint", ("EpochEntry",)),
            ("logstore.partition.recovery.loader", ("RecoveryReport",)),
            (
                "logstore.partition.checking.findings",
                ("VerifyReport", "VerifyProgress", "Finding", "FindingKind"),
            ),
            ("logstore.partition.cleaning.reports", ("CompactionReport", "CompactionProgress", "Throttle")),
            ("logstore.partition.cleaning.reports", ("EraseReport", "EraseProgress")),
            ("logstore.partition.cleaning.dirtiness", ("Dirtiness",)),
            ("logstore.files", ("PathLike",)),
        ),
    ),
    "errors": (
        "Errors",
        "All errors are in `logstore.errors`. The six that head a family are also in `logstore`.",
        (("logstore.errors", ()),),
    ),
    "metrics": (
        "Metrics",
        "`store.metrics()` returns what a store has counted. [Metrics](../metrics.md) lists all of it, and "
        "shows how to export it.",
        (
            ("logstore.metrics.snapshot", ("Metrics", "Series", "Labels", "Value")),
            ("logstore.counting", ("HistogramValue",)),
            ("logstore.metrics.prometheus", ("MetricsCollector",)),
            ("logstore.metrics.opentelemetry", ("export_metrics",)),
        ),
    ),
    "segment-files": (
        "Segment files",
        "`logstore.segment_files` looks into single files, wherever they lie. "
        "[Looking into a segment file](../segment-files.md) shows how.",
        (("logstore.segment_files", ("Segment", "SegmentBatch", "OffsetIndex", "TimeIndex")),),
    ),
    "security": (
        "Security",
        "`logstore.security` is for listeners that have to know their clients. "
        "[Security](../security.md) shows how.",
        (("logstore.security", ()),),
    ),
    "testing-kit": (
        "Testing kit",
        "`logstore.testing` is for your own tests. [The testing kit](../testing-kit.md) shows how.",
        (
            ("logstore.testing", ()),
            ("logstore.wire.listener.intercepting", ("Action", "Intercept")),
        ),
    ),
}
"""File name -> title, introduction, and the names of each module; all of its own where none are given."""

FOR_ENGINES = {
    "Log.writer": "the parts behind the log",
    "Log.facts_to_check": "part of a check",
    "Log.adopt": "takes what another process has encoded",
    "Log.adopt_file": "takes what another process has encoded",
    "Log.last_of_producer": "goes with adopt",
    "Log.position_at": "a step of following, for a reader of many logs",
    "Log.advance": "a step of following, for a reader of many logs",
    "Log.prepare_checkpoint": "part of a checkpoint of many logs",
    "Log.append_if_ready": "an append that event loops may make",
    "Log.written_offsets": "a look that event loops may take",
    "Consumer.poll_fetched": "for who drives its polls",
    "Consumer.positions": "for who commits what has moved",
    "Consumer.give_back": "for who drives its polls",
    "Consumer.one_by_one": "for who drives its polls",
    "Log.written_high_watermark": "part of a checkpoint of many logs",
    "Log.written_bytes": "part of a checkpoint of many logs",
    "Log.abandon": "a crash, for tests of an engine",
    "LatestView.record_lists": "what iterating a view is made of",
    "Wait.tell": "the log calls it",
    "Wait.expire_by": "the log calls it",
    "FaultyFiles.begin": "what its files call",
    "FaultyFiles.end": "what its files call",
    "MemoryFiles.begin": "what its files call",
    "Producer.counts": "what `Store.metrics` reads",
    "LogCleaner.start": "its store does it",
    "LogCleaner.stop": "its store does it",
    "MetricsCollector.describe": "the registry calls it",
    "MetricsCollector.collect": "the registry calls it",
    "FileCoordinator.check_usable": "nodes call it",
    "ZooKeeperCoordinator.check_usable": "nodes call it",
}
"""Public members that few programs have a use for, and why. They get one line each, at the end of their
class; all others are described in full."""

NAMED_BY_USERS = {"open_store": "open"}
"""Names of the source that users know by others."""

HEADED_BY = {
    "ReadableLog": "Log",
    "CheckableLog": "Log",
    "_IndexFile": "OffsetIndex",
    "TopicConfig": "TopicConfig",
}
"""Classes without an entry, and the class whose entry shows their members."""

MADE_BY_USERS = {
    "NewRecord",
    "Record",
    "ProducerIdentity",
    "TopicPartition",
    "Serializer",
    "ManualClock",
    "FaultyFiles",
    "MemoryFiles",
    "Fault",
    "Delay",
    "Drop",
    "DropAnswer",
    "HangUp",
    "Refuse",
    "MetricsCollector",
    "ServerTls",
    "Acl",
    "AclFilter",
    "RemoteConfig",
    "Sasl",
    "Node",
    "FileCoordinator",
    "History",
    "Network",
    "NetworkFaults",
    "World",
    "OffsetAndMetadata",
    "ProducerRecord",
    "QuotaEntity",
    "Throttle",
    "ZooKeeperCoordinator",
}
"""Classes whose constructor is part of the interface: all others are made by logstore."""

_ELSEWHERE = {"TopicConfig": "../settings.md#topics", "StoreConfig": "../settings.md#stores"}


def _names_of(module_name: str) -> tuple[str, ...]:
    """What a module offers: its ``__all__``, or its error classes."""
    for node in module(module_name).tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return tuple(
        node.name
        for node in module(module_name).tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    )


@cache
def symbols() -> dict[str, list[Symbol]]:
    """Those of each page, in its order."""
    return {
        page: [
            symbol(module_name, name)
            for module_name, names in groups
            for name in names or _names_of(module_name)
        ]
        for page, (_, _, groups) in PAGES.items()
    }


def name_of(found: Symbol) -> str:
    return NAMED_BY_USERS.get(found.name, found.name)


def _anchor(heading: str) -> str:
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "_- ").replace(
        " ", "-"
    )


@cache
def addresses() -> dict[str, str]:
    """Name, ``Class.member``, or either with ``page:`` in front -> page#anchor.

    A name that two pages have is the earlier page's."""
    found: dict[str, str] = dict(_ELSEWHERE)
    for page, of_page in symbols().items():
        for each in of_page:
            name = name_of(each)
            places = dict.fromkeys((each.name, name), name)
            for member in each.members:
                place = f"{name}.{member.name}"
                section = "for engines" if place in FOR_ENGINES else member.section
                in_list = section_title(name, section) if section else name
                places[place] = place if is_headed(member) and place not in FOR_ENGINES else in_list
            for place, heading in places.items():
                address = f"{page}.md#{_anchor(heading)}"
                found.setdefault(place, address)
                found[f"{page}:{place}"] = address
    return found


def is_headed(member: Member) -> bool:
    """Whether a member has a heading of its own, and not one line in a list."""
    doc = parse(member.doc)
    return member.kind == "method" or (member.kind == "property" and bool(doc.sections or doc.paragraphs[1:]))


def section_title(owner: str, section: str) -> str:
    return f"{owner}: {section[0].lower()}{section[1:]}"


class Linker:
    """Resolves the targets of roles in one class's docstrings, for one page."""

    def __init__(self, page: str, owner: str = "", prefix: str = "") -> None:
        self._page = page
        self._owner = owner
        self._prefix = prefix

    def __call__(self, role: str, target: str) -> str | None:
        if role == "doc":
            return f"../{target}" if not self._prefix else target
        *path, name = target.removesuffix("()").split(".")
        owner = path[-1] if path else ""
        owner = HEADED_BY.get(owner, owner)
        known = addresses()
        for candidate in (f"{owner}.{name}", f"{self._owner}.{name}", HEADED_BY.get(name, name)):
            if address := known.get(f"{self._page}:{candidate}") or known.get(candidate):
                if address.startswith("../"):
                    return address if not self._prefix else address.partition(".md")[2]
                return self._prefix + address.removeprefix(f"{self._page}.md")
        return None


# Rendering --------------------------------------------------------------------------------------------------


def reference_pages() -> dict[str, str]:
    """Path below docs/reference -> text."""
    return {
        "README.md": _index(),
        **{f"{page}.md": "\n\n".join(_page(page)) + "\n" for page in PAGES},
    }


def _index() -> str:
    lines = [
        "# Reference",
        MADE_BY,
        "What programs call, with arguments, errors and costs. The settings have [a page of their own]"
        "(../settings.md).",
    ]
    for page, (title, _, _) in PAGES.items():
        names = ", ".join(
            f"[`{name_of(each)}`]({addresses()[f'{page}:{name_of(each)}']})" for each in symbols()[page]
        )
        lines.append(fill(f"[{title}]({page}.md): {names}", "  ", "* "))
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:]) + "\n"


def _page(page: str) -> Iterator[str]:
    title, introduction, _ = PAGES[page]
    yield f"# {title}"
    yield MADE_BY
    yield fill(introduction)
    if page == "errors":
        tree = parse(ast.get_docstring(module("logstore.errors").tree) or "").paragraphs
        yield "```\n" + "\n".join(line[4:] for line in tree[2].splitlines()) + "\n```"
    elif len(symbols()[page]) > 1:
        link = Linker(page)
        items = (
            f"* [`{name_of(each)}`](#{_anchor(name_of(each))}): {inline(summary(each.doc), link)}"
            for each in symbols()[page]
        )
        yield "\n".join(fill(item, "  ") for item in items)
    for each in symbols()[page]:
        yield from symbol_blocks(each, Linker(page, name_of(each)), page)


def symbol_blocks(found: Symbol, link: Linker, page: str) -> Iterator[str]:
    name = name_of(found)
    yield f"## {name}"
    if found.kind != "class" or name in MADE_BY_USERS:
        yield _code(name + found.signature.removeprefix(found.name))
    elif page == "errors":
        bases = [
            f"[`{base}`]({address})" if (address := link("", base)) else f"`{base}`" for base in found.bases
        ]
        yield f"Subclass of {' and '.join(bases)}."
    if found.doc:
        yield render(found.doc, link)
    if found.constructor_doc and name in MADE_BY_USERS:
        yield render(found.constructor_doc, link)
    yield from member_blocks(found, link)


def member_blocks(found: Symbol, link: Linker) -> Iterator[str]:
    """The members, section by section: in each the short ones as a list, then those that need more."""
    name = name_of(found)
    members = [each for each in found.members if f"{name}.{each.name}" not in FOR_ENGINES]
    sections = list(dict.fromkeys(each.section for each in members))
    level = "####" if sections[1:] else "###"
    for section in sections:
        here = [each for each in members if each.section == section]
        short = [each for each in here if not is_headed(each)]
        if section:
            yield f"### {section_title(name, section)}"
        elif short:
            yield "**Attributes:**"
        if short:
            yield "\n".join(_field_line(each, link) for each in short)
        for each in here:
            if is_headed(each):
                yield f"{level} {name}.{each.name}"
                yield _code(each.signature)
                yield render(each.doc, link)
    rest = [each for each in found.members if f"{name}.{each.name}" in FOR_ENGINES]
    if rest:
        yield f"### {name}: for engines"
        yield "Parts of logstore call these, and few programs need them. Their docstrings say more."
        yield "\n".join(
            fill(f"`{each.name}`: {inline(summary(each.doc), link)}", "  ", "* ") for each in rest
        )


def _field_line(member: Member, link: Linker) -> str:
    colon = f": {inline(' '.join(member.doc.split()), link)}" if member.doc else ""
    return fill(f"`{member.signature}`{colon}", "  ", "* ")


def _code(signature: str) -> str:
    return f"```python\n{signature}\n```"
