"""Event-sourced accounts: each change is an event, and a snapshot saves reading all events again.

The events of an account are the truth. A compacted topic keeps for each account its latest snapshot, with the
offset of the next event. A process that starts takes the snapshots and applies the events behind them; what
a killed one has decided is there, and nothing twice. Run: python examples/account.py
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter

import logstore

COMPACTED = logstore.TopicConfig(cleanup_policy="compact")


class Accounts:
    def __init__(self, store: logstore.Store) -> None:
        self.events = store.require_topic("events").serialized(key="text", value="json")
        snapshots = store.require_topic("snapshots", config=COMPACTED)
        self.snapshots = snapshots.serialized(key="text", value="json")
        self.balances, start, self.replayed = Counter[str](), 0, 0
        for name, (balance, next_offset) in self.snapshots.latest().items():
            self.balances[name], start = balance, next_offset
        for event in self.events.read({0: start}):
            self.balances[event.key] += event.value
            self.replayed += 1

    def change(self, name: str, amount: int) -> None:
        if self.balances[name] + amount < 0:
            raise ValueError(f"{name} has only {self.balances[name]}")
        _, offset = self.events.append(amount, key=name, flush=True)  # decided; a power cut cannot take it
        self.balances[name] += amount
        if offset % 50 == 49:  # all of them in one batch: a crash leaves all or none
            self.snapshots.extend([(each, [self.balances[each], offset + 1]) for each in self.balances])


if __name__ == "__main__" and len(sys.argv) == 3:
    with logstore.open(sys.argv[1]) as store:
        accounts = Accounts(store)
        for number in range(int(sys.argv[2])):
            accounts.change("alice" if number % 3 else "bob", 10 if number % 2 else 20)
        os.kill(os.getpid(), 9)
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        for count in (120, 75, 30):
            subprocess.run([sys.executable, __file__, path, str(count)], check=False)
        with logstore.open(path) as store:
            accounts = Accounts(store)
            events = [event.value for event in accounts.events.read()]
        print(f"{len(events)} events, {accounts.replayed} of them read again: {dict(accounts.balances)}")
        print("as all events say:", sum(events) == sum(accounts.balances.values()))
