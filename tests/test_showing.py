"""What notebooks show of stores, topics, logs, records and reports: whatever is in them, the page is safe."""

import os
import string
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import logstore
from logstore import showing
from logstore.model import PlainRecord
from logstore.partition.checking.findings import Finding, FindingKind, VerifyReport
from logstore.partition.recovery.loaded import RecoveryReport
from logstore.testing import FaultyFiles, ManualClock, MemoryFiles
from tests.logdir.helpers import run_python

TAGS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
MOST_CHARACTERS = 1_000_000
"""A page of the longest cells, in which each character is an escape; others are far shorter."""


class Page(HTMLParser):
    """Reads what is shown as a browser does; refuses everything that logstore has no reason to write."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        assert len(shown) <= MOST_CHARACTERS
        assert shown.isprintable()
        self.feed(shown.encode().decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS
        for name, value in attributes:
            assert name == "colspan" or (
                name == "style" and set(value) <= {*string.ascii_letters, *"-:;. 0123456789"}
            )
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def page_of(value):
    return Page(value._repr_html_())


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


# What is shown


def test_a_store_shows_its_topics_and_completes_their_names(store):
    store.create_topic("orders", partitions=3).extend([(b"k", b"1"), (b"l", b"2")])
    store.create_topic("empty")
    assert page_of(store).rows[1:] == [
        ["empty", "1", "0", "0"],
        ["orders", "3", "2", str(sum(log.size_bytes for log in store["orders"]))],
    ]
    assert store._ipython_key_completions_() == ["empty", "orders"]


def test_a_topic_shows_its_partitions_and_its_own_settings(store):
    topic = store.create_topic("t", partitions=2, config=logstore.TopicConfig(retention_bytes=1_000_000))
    topic.append(b"v", partition=1)
    rows = page_of(topic).rows
    assert [row[:3] for row in rows[1:3]] == [["0", "0", "0"], ["1", "0", "1"]]
    assert ["retention_bytes", "1,000,000"] in rows


@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_log_shows_its_offsets_and_its_last_records(store, is_read_only):
    store.create_topic("t")[0].extend([(b"k%d" % number, b"v") for number in range(100)])
    with logstore.open(store.path, read_only=True) as reader:
        rows = page_of((reader if is_read_only else store)["t"][0]).rows
    assert rows[1][:2] == ["0", "100"]
    assert [(row[0], row[2]) for row in rows[3:]] == [
        (str(number), f"b'k{number}'") for number in range(95, 100)
    ]


def test_a_record_shows_where_and_when(store):
    store.create_topic("t")[0].append(b"v", key=b"k", headers={"h": b"x"}, timestamp_ms=1_700_000_000_123)
    rows = dict(page_of(next(store["t"].read())).rows)
    assert (rows["topic"], rows["partition"], rows["offset"]) == ("t", "0", "0")
    assert rows["timestamp"] == "2023-11-14 22:13:20.123 UTC"
    assert (rows["key"], rows["value"], rows["h"]) == ("b'k'", "b'v'", "b'x'")


def test_reports_show_what_is_not_empty(store):
    topic = store.create_topic("t", config=logstore.TopicConfig(cleanup_policy="compact"))
    topic.extend([(b"k", b"1"), (b"k", b"2"), (b"l", b"3")])
    [report] = topic.compact(now=True).values()
    assert dict(page_of(report).rows)["kept_record_count"] == "2"
    assert "removed_marker_count" not in dict(page_of(report).rows)
    assert dict(page_of(topic[0].erase(keys=[b"l"])).rows)["offsets"] == "2"
    assert dict(page_of(topic[0].dirtiness()).rows)["is_overdue"] == "False"
    assert dict(page_of(topic[0].recovery).rows)["was_clean"] in ("True", "False")
    assert page_of(store.verify()).text.startswith("VerifyReport: sound")


def test_copies_show_their_partitions(store, tmp_path):
    store.create_topic("t", partitions=2).extend([b"v"] * 5)
    rows = page_of(store.backup(tmp_path / "backup")).rows
    assert ["is_incremental", "False"] in rows
    assert [row[0] for row in rows[-2:]] == ["t-0", "t-1"]
    store.close()
    rows = page_of(logstore.handover(store.path, tmp_path / "other")).rows
    assert ["created_topics", "t"] in rows
    assert [row[0] for row in rows[-2:]] == ["t-0", "t-1"]


# Whatever is in it

TEXT = st.text(st.characters(codec=None))
HOSTILE = [
    "<script>alert(1)</script>",
    "</table>&lt;",
    "\x00\x1b[2J\u202e\n",
    "\udc80\ud800",
    "x" * 10_000,
    "'\"",
]


@pytest.mark.parametrize("kind", sorted({PlainRecord, logstore.Record}, key=id))
@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(TEXT, st.none() | st.binary()), max_size=60),
    timestamp_ms=st.integers(-1, 2**63 - 1),
)
@example(
    key=b"<script>alert(1)</script>",
    value=b"<" * 10_000_000,
    headers=[(text, text.encode(errors="replace")) for text in HOSTILE * 20],
    timestamp_ms=2**63 - 1,
)
def test_any_record_is_safe(kind, key, value, headers, timestamp_ms):
    page_of(kind(0, timestamp_ms, key, value, tuple(headers)))
    Page(
        showing.show("", [showing.table_of_records([kind(0, timestamp_ms, key, value, tuple(headers))] * 60)])
    )


@given(TEXT)
@example("".join(HOSTILE))
def test_any_text_is_safe(text):
    class Odd:
        def __str__(self):
            raise ValueError(text)

    finding = Finding(kind=FindingKind.BATCH, path=text, reason=text, position=1)
    page_of(VerifyReport(problems=(finding,) * 1000, notes=(finding,) * 1000, problem_count=5000))
    page_of(RecoveryReport(was_clean=False, kept_aside=[text] * 1000))
    Page(showing.show(text, [text, showing.Table((text,), [(text, Odd()), (text, ValueError(text))])]))
    Page(showing.show(text, (1 / 0 for _ in text)))


def test_a_path_is_safe(tmp_path):
    directory = os.fsencode(tmp_path) + b"/<script>\xff\n"
    with logstore.open(os.fsdecode(directory)) as store:
        log = store.create_topic("t")[0]
        for each in (store, store["t"], log):
            page_of(each)
    assert "<script>" in page_of(store).text  # as text


# However much there is


def test_rows_are_bounded(store):
    topic = store.create_topic("many", partitions=60)
    page = page_of(topic)
    assert len(page.rows) == 1 + showing.MOST_ROWS
    assert page.text.endswith("and 10 more")


def test_a_store_looks_at_a_bounded_number_of_partitions(store, monkeypatch):
    monkeypatch.setattr(showing, "MOST_LOGS", 5)
    store.create_topic("a", partitions=4).append(b"v")
    store.create_topic("b", partitions=2).append(b"v")
    assert [row[:3] for row in page_of(store).rows[1:]] == [
        ["a", "4", "1"],
        ["b", "2", "too many partitions to look at all"],
    ]


def test_showing_a_log_reads_its_last_records_only():
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        log = store.create_topic("t", config=logstore.TopicConfig(segment_bytes=100_000))[0]
        for _ in range(100):
            log.extend([(b"k", bytes(1000))] * 100)
        assert log.segment_count > 50
        before = len(files.operations)
        for each in (store, store["t"], log):
            page_of(each)
        assert 0 < len(files.operations) - before < 10


# Nothing is changed


def test_showing_leaves_appends_to_gather():
    files = MemoryFiles()
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        log = store.create_topic("t")[0]
        log.append(b"v")
        before = len(files.trace)
        rows = [page_of(each).rows for each in (store, store["t"], log)]
        assert len(files.trace) == before
        assert log.written_bytes == 0
        assert [rows[0][1][2], rows[1][1][2], rows[2][1][1]] == ["1", "1", "1"]
        assert len(rows[2]) == 3  # no record is written yet


@pytest.mark.damaged
def test_damage_is_shown_and_does_not_count_as_read(tmp_path):
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t")[0]
        log.extend([b"v" * 100])
        [file] = tmp_path.glob("t-0/*.log")
        with file.open("r+b") as opened:
            opened.seek(-1, os.SEEK_END)
            opened.write(b"!")
        page = page_of(log)
        assert page.rows[1][:2] == ["0", "1"]
        assert "CorruptionError: " in page.text
        assert log.damaged_read_count == 0
        page = page_of(store.verify())
        assert page.text.startswith("VerifyReport: 1 problem")
        assert "restore the file from a copy" in page.text


@pytest.mark.damaged
def test_what_does_not_open_says_why(tmp_path):
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.create_topic("t", partitions=2)[0].extend([b"v" * 100], flush=True)
    [file] = path.glob("t-0/*.log")
    file.unlink()
    with logstore.open(path) as store:
        assert store.damaged
        for each in (store, store["t"]):
            assert "CorruptionError: data up to offset 1 was durable" in page_of(each).text
        assert page_of(store["t"]).rows[2][0] == "1"


def test_what_is_closed_says_so(tmp_path):
    for is_read_only in (False, True):
        with logstore.open(tmp_path, read_only=is_read_only) as store:
            topic = store["t"] if is_read_only else store.create_topic("t")
            log = topic[0]
        for each in (store, topic, log):
            assert "ClosedError: " in page_of(each).text
        assert store._ipython_key_completions_() == []


def test_it_is_imported_when_something_is_shown():
    assert run_python("import logstore, sys; print('logstore.showing' in sys.modules)").strip() == "False"
