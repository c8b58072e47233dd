"""A topic is deleted and made again while the background stores a checkpoint of its log.

The checkpoint went on by names: it put the old log's producer snapshot into the new one's directory, and the
old log's end down as the new one's recovery point. Once the store was opened again, the new topic was
refused, because data that had been durable was missing. Found by killing writers of a whole store, whose
background complained of a file that was gone.
"""

import threading

import pytest
from tests.logdir.helpers import crash, open_store, values
from tests.partition.helpers_rules import WatchedFiles

from logstore.config import TopicConfig


@pytest.mark.parametrize("step", [("flush", ".log"), ("flush", ".index"), ("rename", ".snapshot.tmp")])
def test_the_old_logs_checkpoint_is_not_the_new_ones(tmp_path, step):
    files = WatchedFiles()
    store = open_store(tmp_path / "s", files=files)
    log = store.create_topic("t")[0]
    log.extend([b"old"] * 100)
    log.roll()
    log.extend([b"old"])
    reached, go_on = threading.Event(), threading.Event()

    def before(operation, path):
        if threading.current_thread() is checkpoint and (operation, path[-len(step[1]) :]) == step:
            reached.set()
            go_on.wait(0.3)

    def replace():
        store.delete_topic("t")
        store.create_topic("t", config=TopicConfig()).append(b"new", flush=True)

    checkpoint = threading.Thread(target=log_checkpoint, args=(log,))
    files.before = before
    checkpoint.start()
    assert reached.wait(5)
    replace()
    go_on.set()
    checkpoint.join()
    crash(store)
    with open_store(tmp_path / "s") as again:
        assert again.damaged == {}
        assert values(again["t"][0]) == [b"new"]
        assert again["t"][0].recovery.cut_bytes == 0


def log_checkpoint(log):
    """As the background does it."""
    try:
        log.writer.durability.background_flush()
        log.prepare_checkpoint()
        log._context.home.store_checkpoints()
    except Exception as error:
        log.told = error
