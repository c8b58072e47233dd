"""A deleted topic's directories must have their new names durably before its catalogue entry goes: after a
power cut in between they would be back, without an entry, and the next open would take them for a topic that
a broker wrote. The order was right, and only a trace of all operations held it."""

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.testing import ManualClock, MemoryFiles, explore, trace_lines

SETTINGS = TopicConfig(retention_ms=12_345)


def open_store(files):
    return logstore.open("/store", files=files, clock=ManualClock(), config=StoreConfig(linger_ms=0))


def delete(files):
    store = open_store(files)
    store.require_topic("t", partitions=2, config=SETTINGS)[0].extend([b"v"])
    files.note("complete")
    store.delete_topic("t")


def test_the_new_names_are_durable_before_the_entry_goes():
    files = MemoryFiles()
    delete(files)
    lines = trace_lines(files.trace, "/store")
    lines = lines[lines.index("# complete") :]
    renamed = max(number for number, line in enumerate(lines) if line.startswith("rename t-"))
    entry_goes = lines.index("rename topics.json.tmp -> topics.json", renamed)
    assert "flush directory ." in lines[renamed:entry_goes]


class Deletion:
    """A topic is made and deleted. Of one that is there its settings are, too."""

    def session(self, files, said, rng):
        delete(files)
        files.note("deleted")

    def check(self, files, said):
        store = open_store(files)
        if "deleted" in said:
            assert "t" not in store
        for topic in store.values():
            assert topic.config == SETTINGS
        store._directory.abandon()


def test_no_power_cut_brings_a_deleted_topic_back():
    assert explore(Deletion(), seed=1, max_states=400).state_count >= 50
