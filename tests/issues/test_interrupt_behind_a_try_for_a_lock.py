"""The linger task tried for the log's lock, and an interrupt right behind that call kept it: appends run the
task in their own thread. Every other thread then waited for the log for ever, and ``checkpoint()`` for them.
"""

from __future__ import annotations

import sys
import threading

import pytest

import logstore


class _Interrupts:
    """Raises when the n-th call of a function in C returns, where an interrupt may strike."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame, event, argument):
        if event == "c_return" and frame.f_globals["__name__"].startswith("logstore."):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def _free_for_others(lock) -> bool:
    found = []

    def try_it():
        found.append(lock.acquire(timeout=1))
        if found[0]:
            lock.release()

    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    return found[0]


@pytest.mark.parametrize("lingers", [True, False])
def test_an_interrupt_leaves_no_lock_behind(tmp_path, lingers):
    config = logstore.StoreConfig(linger_ms=60_000 if lingers else 0)
    for at in range(1, 60):
        with logstore.open(tmp_path / str(at), config=config) as store:
            topic = store.create_topic("t")
            topic[0].append(b"v")
            interrupts = _Interrupts(at)
            sys.setprofile(interrupts)
            try:
                topic[0].writer.gathering._linger()
                store._directory._upkeep.store_high_watermarks()
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            assert _free_for_others(topic[0].writer.guard.lock), at
            assert _free_for_others(store._directory._upkeep._lock), at
            if topic[0].needs_reopen:
                topic.reopen(0)
        if interrupts.left > 0:
            break
    assert at >= 5
