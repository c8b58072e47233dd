"""Creating, growing and deleting topics, cut off at file operations: at every ninth in the fast run, in the
slow one at every fourth, the next with each commit."""

import shutil

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError, LogstoreError, StorageError
from logstore.testing import ManualClock, explore
from tests.logdir.helpers import FailingFiles, crash, names_in, open_store, snapshot, values
from tests.rotation import part


@pytest.fixture(params=["ninth", pytest.param("fourth", marks=pytest.mark.slow)])
def numbers(request):
    """Of the operations, from 0 on, that fail."""
    return range(0, 1000, 9) if request.param == "ninth" else part(range(1000), 4)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with a topic whose records must survive whatever happens to others."""
    path = tmp_path_factory.mktemp("filled") / "store"
    with open_store(path) as store:
        store.create_topic("kept")[0].extend([b"v"] * 5)
        store.create_topic("old", partitions=2)[1].extend([b"v"] * 3)
        part = store.create_topic("part", partitions=4, held=[1, 3])
        part[1].extend([b"one"] * 2)
        part[3].extend([b"three"] * 2)
    return path


@pytest.fixture
def copies(filled, tmp_path, numbers):
    """(number, a fresh copy of the filled store) without end."""

    def copy():
        for number in numbers:
            path = tmp_path / str(number)
            shutil.copytree(filled, path)
            yield number, path

    return copy


def every_crash(copies, change):
    """Run ``change`` on a filled store with its 1st, 2nd, ... file operation failing and all after it, until
    it passes untouched. Yields (number, store reopened on the plain disk)."""
    for number, path in copies():
        files = FailingFiles()
        store = open_store(path, files=files)
        files.left = number
        try:
            change(store)
        except LogstoreError:
            assert files.has_failed
        crash(store)
        with open_store(path) as reopened:
            assert reopened.damaged == {}
            assert values(reopened["kept"][0]) == [b"v"] * 5
            assert reopened["kept"][0].append(b"more") == 5
            yield number, reopened
        with open_store(path) as again:
            assert again.was_clean
            assert not [name for name in names_in(path) if "-delete" in name]
        if not files.has_failed:
            return


def test_a_topic_is_created_whole_or_not_at_all(copies):
    config = TopicConfig(retention_ms=77)
    seen = []
    for _, store in every_crash(copies, lambda s: s.create_topic("new", partitions=2, config=config)):
        seen.append("new" in store)
        topic = store.require_topic("new", partitions=2, config=config)
        assert [log.append(b"v") for log in topic] == [0, 0]
        assert len({log.directory for log in topic}) == 2
    assert (seen[0], seen[-1]) == (False, True)
    assert sorted(seen) == seen  # once it is on disk it stays


def test_a_topic_is_deleted_whole_or_not_at_all(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s.delete_topic("old")):
        seen.append("old" in store)
        if seen[-1]:
            assert [values(log) for log in store["old"]] == [[], [b"v"] * 3]
        else:
            fresh = store.create_topic("old", partitions=2)
            assert [log.append(b"new") for log in fresh] == [0, 0]
    assert (seen[0], seen[-1]) == (True, False)
    assert sorted(seen, reverse=True) == seen


def test_partitions_are_added_all_or_none(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s["old"].add_partitions(4)):
        topic = store["old"]
        seen.append(len(topic))
        assert values(topic[1]) == [b"v"] * 3
        if len(topic) == 2:
            topic.add_partitions(4)
        assert [values(log) for log in topic[2:]] == [[], []]
        assert [log.append(b"v") for log in topic[2:]] == [0, 0]
    assert (set(seen), seen[0], seen[-1]) == ({2, 4}, 2, 4)


def held_values(topic):
    return {log.partition.partition: values(log) for log in topic}


PART = {1: [b"one"] * 2, 3: [b"three"] * 2}


def test_a_topic_that_is_held_in_part_is_created_whole_or_not_at_all(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s.create_topic("new", partitions=4, held=[1, 2])):
        seen.append("new" in store)
        topic = store.require_topic("new", partitions=4, held=[1, 2])
        assert [log.append(b"v") for log in topic] == [0, 0]
        assert held_values(store["part"]) == PART
    assert (seen[0], seen[-1]) == (False, True)
    assert sorted(seen) == seen


def test_partitions_are_held_all_or_none(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s["part"].hold([0, 2])):
        topic = store["part"]
        seen.append(topic.held_partitions)
        topic.hold([0, 2])
        assert held_values(topic) == {0: [], 2: [], **PART}
        assert [topic[number].append(b"v") for number in (0, 2)] == [0, 0]
    assert (set(seen), seen[0], seen[-1]) == ({(1, 3), (0, 1, 2, 3)}, (1, 3), (0, 1, 2, 3))
    assert sorted(seen, reverse=True) == seen


def test_a_partition_is_let_go_or_held_with_all_its_records(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s["part"].let_go(3)):
        topic = store["part"]
        seen.append(len(topic.held_partitions))
        assert held_values(topic) == (PART if seen[-1] == 2 else {1: PART[1]})
        topic.hold([3])
        assert held_values(topic) == (PART if seen[-1] == 2 else {**PART, 3: []})
    assert (seen[0], seen[-1]) == (2, 1)
    assert sorted(seen, reverse=True) == seen


def test_a_partition_that_is_let_go_and_held_again_never_has_old_records(copies):
    def change(store):
        store["part"].let_go(3)
        store["part"].hold([3])
        store["part"].append(b"new", partition=3, flush=True)

    seen = []
    for _, store in every_crash(copies, change):
        found = held_values(store["part"])
        assert found.pop(1) == PART[1]
        if found not in seen:
            seen.append(found)
    assert seen[0] == {3: PART[3]}
    assert seen[-1] == {3: [b"new"]}
    assert all(found in ({}, {3: []}) for found in seen[1:-1])


def test_settings_are_changed_or_not(copies):
    seen = []
    for _, store in every_crash(copies, lambda s: s["old"].configure(retention_ms=77)):
        seen.append(store["old"].config.retention_ms == store["old"][0].config.retention_ms == 77)
    assert (seen[0], seen[-1]) == (False, True)


def test_a_topic_that_is_deleted_and_created_again_never_has_old_records(copies):
    def change(store):
        store.delete_topic("old")
        store.create_topic("old", partitions=2)[1].append(b"new", flush=True)

    for _, store in every_crash(copies, change):
        if "old" in store:
            assert values(store["old"][1]) in ([b"v"] * 3, [], [b"new"])


def test_a_first_open_may_be_cut_off_anywhere(copies):
    for number, path in copies():
        shutil.rmtree(path)
        files = FailingFiles(number)
        try:
            crash(open_store(path, files=files))
        except StorageError:
            assert files.has_failed
        with open_store(path) as store:
            store.create_topic("t").append(b"v")
        if not files.has_failed:
            assert number > 10
            return


def test_a_clean_stop_may_be_cut_off_anywhere(copies):
    for number, path in copies():
        files = FailingFiles()
        store = open_store(path, files=files)
        log = store["kept"][0]
        log.extend([b"v"] * 10)
        files.left = number
        try:
            store.close()
        except StorageError:
            assert files.has_failed
        with open_store(path) as store:
            assert values(store["kept"][0]) == [b"v"] * 15
        if not files.has_failed:
            assert number > 10
            return


def test_an_open_after_a_clean_stop_may_be_cut_off_anywhere(copies):
    for number, path in copies():
        files = FailingFiles(number)
        try:
            crash(open_store(path, files=files))
        except StorageError:
            assert files.has_failed
        with open_store(path) as store:
            assert values(store["kept"][0]) == [b"v"] * 5
            assert store.damaged == {}
        if not files.has_failed:
            return


# The process lives on ---------------------------------------------------------------------------------------


def every_failure(copies, change):
    """As every_crash, but only one operation fails, and the same store is used on."""
    for number, path in copies():
        files = FailingFiles(once=True)
        with open_store(path, files=files) as store:
            files.left = number
            try:
                change(store)
                failed = False
            except LogstoreError:
                failed = True
            files.left = None
            assert values(store["kept"][0]) == [b"v"] * 5
            yield failed, store
        with open_store(path) as again:
            assert again.damaged == {}
        if not files.has_failed:
            return


def test_a_creation_that_failed_leaves_no_topic_and_can_be_repeated(copies):
    for failed, store in every_failure(copies, lambda s: s.create_topic("new", partitions=2)):
        assert ("new" in store) is not failed
        if failed:
            store.create_topic("new", partitions=2)
            assert [log.append(b"v") for log in store["new"]] == [0, 0]


def test_a_deletion_that_failed_can_be_repeated_or_followed_by_a_creation(copies):
    for failed, store in every_failure(copies, lambda s: s.delete_topic("old")):
        if failed and "old" in store:
            assert [values(log) for log in store["old"]] == [[], [b"v"] * 3]
            store.delete_topic("old")
        assert store.create_topic("old")[0].append(b"new") == 0


def test_a_growth_that_failed_can_be_repeated(copies):
    for failed, store in every_failure(copies, lambda s: s["old"].add_partitions(4)):
        if failed:
            assert len(store["old"]) == 2
            store["old"].add_partitions(4)
        assert [log.append(b"v") for log in store["old"][2:]] == [0, 0]


def test_holding_that_failed_can_be_repeated(copies):
    for failed, store in every_failure(copies, lambda s: s["part"].hold([0, 2])):
        if failed:
            assert held_values(store["part"]) == PART
            store["part"].hold([0, 2])
        assert held_values(store["part"]) == {0: [], 2: [], **PART}
        assert [store["part"][number].append(b"v") for number in (0, 2)] == [0, 0]


def test_letting_go_that_failed_can_be_repeated_or_followed_by_holding(copies):
    for number, (failed, store) in enumerate(every_failure(copies, lambda s: s["part"].let_go(3))):
        topic = store["part"]
        is_held = 3 in topic.held_partitions
        assert held_values(topic) == (PART if is_held else {1: PART[1]})
        assert not (is_held and not failed)
        if is_held:
            topic.let_go(3)
        if number % 2:
            topic.hold([3])
        assert held_values(topic) == ({1: PART[1], 3: []} if number % 2 else {1: PART[1]})
        if number % 3 == 2:
            store.delete_topic("part")
            assert store.create_topic("part")[0].append(b"new") == 0


def test_a_failed_change_of_settings_changes_nothing(copies):
    for failed, store in every_failure(copies, lambda s: s["old"].configure(retention_ms=77)):
        assert (store["old"].config.retention_ms == 77) is not failed


# Opening what cannot be opened changes nothing --------------------------------------------------------------


def test_a_store_that_is_refused_is_not_changed(filled, tmp_path):
    path = shutil.copytree(filled, tmp_path / "s")
    (path / "topics.json").write_bytes(b"{")
    before = snapshot(path)
    with pytest.raises(CorruptionError):
        open_store(path)
    assert snapshot(path) == before


class PolicyScenario:
    """Segments that nobody has flushed, of a topic that becomes a compacted one."""

    def open(self, files):
        config = StoreConfig(linger_ms=0, log_cleaner_enable=False)
        return logstore.open("/store", files=files, clock=ManualClock(), config=config)

    def session(self, files, said, rng):
        with self.open(files) as store:
            if "t" not in store:
                store.create_topic("t")
            files.note("created")
            log = store["t"][0]
            for _ in range(3):
                self.add(log)
                if rng.random() < 0.5:
                    log.roll()
            store["t"].configure(cleanup_policy="compact")
            self.add(log)

    def add(self, log):
        value = b"%d" % log.log_end_offset
        log.extend([(value, value)])

    def check(self, files, said):
        if "created" in said:
            store = self.open(files)
            offsets = [record.offset for record in store["t"][0].read()]
            assert offsets == [*range(len(offsets))], "HOLE"
            store._directory.abandon()


def test_a_power_cut_leaves_no_hole_that_looks_like_compaction():
    """The next open would take it for one, whatever the settings were when the records were written."""
    for seed in range(2):
        explore(PolicyScenario(), seed=seed, max_states=1_000, depth=1, states_per_point=8)
