"""A worker elsewhere that had just joined, and waited for its partitions, while the process with the store
was restarted, got a ``UsageError`` that said UNKNOWN_MEMBER_ID. Now it joins once more."""

from __future__ import annotations

import logstore
from logstore.broker.codes import ErrorCode
from logstore.wire.remote.shares import sharing
from logstore.wire.remote.translate import shares
from logstore.wire.remote.translate.shares import Beat


def test_it_joins_once_more(tmp_path, monkeypatch):
    answers = [Beat(ErrorCode.NONE, member_epoch=1, assignment=()), Beat(ErrorCode.UNKNOWN_MEMBER_ID)]
    ask = sharing.ask

    def answer_first(cluster, target, translation, request, client_id, done):
        if translation is shares.HEARTBEAT and answers:
            done(answers.pop(0), 0)
        else:
            ask(cluster, target, translation, request, client_id, done)

    monkeypatch.setattr(sharing, "ask", answer_first)
    with logstore.open(tmp_path / "store") as store, store.listen() as listener:
        store.create_topic("t").append(b"1")
        with logstore.connect(listener.address) as connected, connected.queue("t", group="g") as queue:
            (job,) = queue.poll(timeout=10)
            job.accept()
    assert answers == []
