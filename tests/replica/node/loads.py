"""What clients do to a cluster while it is harmed: in threads, until they are told to end."""

from __future__ import annotations

import threading


class Load:
    """Threads, each of which runs until ``is_over`` is set."""

    def __init__(self, *runs):
        self.is_over = threading.Event()
        self.errors = []
        self._threads = [threading.Thread(target=self._guarded, args=(run,)) for run in runs]
        for thread in self._threads:
            thread.start()

    def _guarded(self, run):
        try:
            run()
        except Exception as error:
            self.errors.append(error)
            raise

    def stop(self):
        self.is_over.set()
        for thread in self._threads:
            thread.join(150)
            assert not thread.is_alive()
