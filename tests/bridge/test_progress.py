"""What a bridge tells of how far it is, before it knows."""

from __future__ import annotations

import logstore
from logstore import bridge
from logstore.bridge import pull_topics
from logstore.bridge.progress import NOT_ASKED, PartitionProgress
from logstore.testing import kafka


def test_what_is_appended_while_it_is_pushed_is_left_at_once(tmp_path):
    """Who waits until nothing is left, and then stops, would leave what was not looked at yet."""
    with (
        kafka() as servers,
        logstore.open(tmp_path / "s") as store,
        logstore.connect(str(servers)) as cluster,
    ):
        own = store.create_topic("own")
        push = bridge.push(store, cluster, "own", name="b")
        own.append(b"1")
        assert push.run(until_end=True).lag == 0
        own.extend([b"2", b"3"])
        assert (push.progress.lag, push.progress.partitions[0].end_offset) == (2, 3)
        push.run(until_end=True)
    assert push.progress.lag == 0  # the log is closed


def test_before_the_cluster_has_answered_it_is_not_all_copied(tmp_path):
    """Who waits until nothing is left, and then promotes the copy, would lose what was not seen yet."""
    with (
        kafka(topics={"t": 1}) as servers,
        logstore.open(tmp_path / "s") as store,
        logstore.connect(str(servers)) as cluster,
    ):
        servers.store["t"].extend([b"1", b"2"])
        store.create_topic("own").extend([b"3"])
        for each in (bridge.pull(cluster, store, "t"), bridge.push(store, cluster, "own", name="b")):
            assert (each.progress.lag, each.progress.trouble) == (0, NOT_ASKED)
            assert str(each.progress).endswith(f"; 0 offsets left; {NOT_ASKED}")
            done = each.run(until_end=True)
            assert (done.lag, done.trouble) == (0, None)
            assert str(done).endswith("; 0 offsets left")


def test_what_is_found_out_while_it_is_told(tmp_path, monkeypatch):
    """Figures of two moments never say that all is copied when neither did."""
    with (
        kafka(topics={"t": 1}) as servers,
        logstore.open(tmp_path / "s") as store,
        logstore.connect(str(servers)) as cluster,
    ):
        servers.store["t"].extend([b"1", b"2"])
        pull = bridge.pull(cluster, store, "t")
        pull._refresh()

        def then_compared(*fields):
            pull._compare()
            return PartitionProgress(*fields)

        monkeypatch.setattr(pull_topics, "PartitionProgress", then_compared)
        assert pull.progress.trouble is not None
        assert pull.progress.lag == 2
        store.create_topic("own").append(b"3")
        push = bridge.push(store, cluster, "own", name="b")
        push.run(until_end=True)

        class _Parts(dict):
            def copy(self):
                push._refresh_at = 1.0
                return {}

        push._refresh_at, push._parts = 0.0, _Parts()
        assert push.progress.trouble == NOT_ASKED
        assert push.progress.trouble is None
