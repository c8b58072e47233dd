"""`retention_ms` was Kafka's seven days in every topic that said nothing of it. Records dated last year,
appended with ``flush=True`` and so acknowledged as durable, were gone half a minute later, and not a line was
logged: a server's default for data that passes through, in a library that may hold somebody's only copy.

Each sort of store that says nothing of limits lives through a year here, with all background work, and has
every record at its end.
"""

import json

import pytest
from tests.interop.ours import TIME_MS
from tests.logdir.helpers import crash

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.partition.state.home import CATALOGUE_NAME
from logstore.testing import ManualClock, MemoryFiles

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
COUNT = 1_000
SMALL = {"segment_bytes": 4_000}
"""Many segments, and no word of limits."""


def old_records(clock):
    """Dated last year, a value each."""
    first_ms = clock.now_ms() - YEAR_MS
    return [(b"k%d" % number, b"v%d" % number, first_ms + number) for number in range(COUNT)]


def live(store, clock, days=365):
    """Let time pass: steps of minutes at first, then of days."""
    for step_ms in [60_000] * 30 + [DAY_MS] * days:
        clock.advance(step_ms)
        store.run_background()
    store.enforce_retention()


def values(log):
    return [record.value for record in log.read()]


WANTED = [b"v%d" % number for number in range(COUNT)]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def files():
    return MemoryFiles()


def open_store(files, clock, **options):
    return logstore.open("/s", files=files, clock=clock, **options)


@pytest.mark.parametrize(
    ("store_config", "config"),
    [
        (None, None),
        (None, TopicConfig(**SMALL)),
        (StoreConfig(topic=TopicConfig(**SMALL)), None),
        (None, TopicConfig(cleanup_policy="compact,delete", **SMALL)),
    ],
)
def test_a_topic_keeps_what_it_has(files, clock, store_config, config):
    with open_store(files, clock, config=store_config) as store:
        log = store.create_topic("t", config=config)[0]
        log.extend(old_records(clock), flush=True)
        log.roll()
        live(store, clock)
        assert (log.log_start_offset, values(log)) == (0, WANTED)
    with open_store(files, clock) as store:
        live(store, clock, days=30)
        assert values(store["t"][0]) == WANTED


def test_a_compacted_topic_keeps_the_latest_of_every_key(files, clock):
    with open_store(files, clock) as store:
        log = store.create_topic("t", config=TopicConfig(cleanup_policy="compact", **SMALL))[0]
        log.extend([(key, b"old", stamp_ms) for key, _, stamp_ms in old_records(clock)])
        log.extend(old_records(clock), flush=True)
        log.roll()
        live(store, clock)
        assert values(log) == WANTED  # and so it was compacted


def test_a_log_of_its_own_keeps_what_it_has(files, clock):
    path, config = "/alone-0", TopicConfig(**SMALL)
    for _ in range(2):
        with logstore.Log.open(path, files=files, clock=clock, config=config) as log:
            if not log.log_end_offset:
                log.extend(old_records(clock), flush=True)
            for _ in range(365):
                clock.advance(DAY_MS)
                log._context.scheduler.run_due()
                log.enforce_retention()
            assert values(log) == WANTED
    assert logstore.Log.open(path, files=files, clock=clock).config.retention_ms == -1


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_directory_without_a_catalogue_keeps_what_it_has_whatever_new_topics_do(files, clock, how):
    limits = {"cleanup_policy": "compact,delete", "retention_ms": 1, "retention_bytes": 1}
    limited = StoreConfig(topic=TopicConfig(**limits, **SMALL))
    store = open_store(files, clock)
    log = store.create_topic("t", config=TopicConfig(**SMALL))[0]
    log.extend([(b"k1", b"superseded"), *old_records(clock)], flush=True)
    store.close() if how == "closed" else crash(store)
    files.remove(f"/s/{CATALOGUE_NAME}")
    for _ in range(2):  # the second time by the catalogue that the first has written
        with open_store(files, clock, config=limited) as store:
            live(store, clock)
            assert values(store["t"][0]) == [b"superseded", *WANTED]


def test_a_directory_that_a_broker_wrote_keeps_what_it_has(tmp_path):
    from tests.interop.test_read_brokers import check_store, copy_log_dir

    clock, path = ManualClock(TIME_MS), copy_log_dir(tmp_path, "log-dir")
    with logstore.open(path, clock=clock) as store:
        live(store, clock)
        check_store(store, "log-dir")


# Topics that an older logstore has created ------------------------------------------------------------------


def as_before(files, topics):
    """Write the catalogue as it was written when seven days were the default: without them."""
    path = f"/s/{CATALOGUE_NAME}"
    file = files.open(path, write=True)
    catalogue = json.loads(file.read_at(0, file.size_bytes()))
    for name, config in topics.items():
        catalogue["topics"][name]["config"] = config
    data = json.dumps(catalogue).encode()
    file.truncate(0)
    file.write_at(0, [data])
    file.close()


def stored_settings(files):
    file = files.open(f"/s/{CATALOGUE_NAME}")
    return {
        name: topic["config"]
        for name, topic in json.loads(file.read_at(0, file.size_bytes()))["topics"].items()
    }


def test_a_topic_of_an_old_catalogue_keeps_what_it_has_and_that_is_told_once(files, clock, caplog):
    with open_store(files, clock) as store:
        for name in ("compacted", "implied", "kept", "limited"):
            log = store.create_topic(name, config=TopicConfig(**SMALL))[0]
            log.extend(old_records(clock), flush=True)
            log.roll()
    small = {"segment.bytes": "4000"}
    as_before(
        files,
        {
            "compacted": small | {"cleanup.policy": "compact"},
            "implied": small,
            "kept": small | {"retention.ms": "-1"},
            "limited": small | {"retention.ms": "86400000"},
        },
    )
    with caplog.at_level("WARNING", "logstore"), open_store(files, clock) as store:
        live(store, clock)
        assert values(store["implied"][0]) == values(store["kept"][0]) == WANTED
        assert values(store["limited"][0]) == []  # which somebody asked for
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "'implied'" in lines[0]
    assert "retention_ms=604_800_000" in lines[0]
    caplog.clear()
    with caplog.at_level("WARNING", "logstore"), open_store(files, clock) as store:
        assert store["implied"].config.retention_ms == -1
    assert caplog.records == []


def test_the_catalogue_says_what_may_be_deleted_and_leaves_nothing_to_a_default(files, clock):
    with open_store(files, clock) as store:
        store.create_topic("default")
        store.create_topic("a-week", config=TopicConfig(retention_ms=604_800_000))
    settings = stored_settings(files)
    limits = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert settings == {"default": limits, "a-week": limits | {"retention.ms": "604800000"}}
    with open_store(files, clock) as store:
        assert store["a-week"].config == TopicConfig(retention_ms=604_800_000)
        assert store["default"].config == TopicConfig()


def test_a_limit_that_was_asked_for_holds(files, clock):
    with open_store(files, clock) as store:
        log = store.create_topic("t", config=TopicConfig(retention_ms=7 * DAY_MS, **SMALL))[0]
        log.extend(old_records(clock), flush=True)
        live(store, clock, days=1)
        assert values(log) == []
