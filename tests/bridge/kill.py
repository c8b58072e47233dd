"""Kill a cluster that a listener plays, and the edge that pulls from it and pushes into it, again and again;
then compare what both have.

    python -m tests.bridge.kill --kills 500 --seed 1 /dev/shm/kills

A pair of directories serves a dozen kills, of one side or of both.
"""

from __future__ import annotations

import functools
import random
import shutil
import time
from typing import Any

import logstore
from logstore import bridge
from logstore.config import StoreConfig, TopicConfig
from logstore.connected import RemoteStore
from logstore.errors import RetriableError
from logstore.files import Files
from logstore.model import Isolation, ProducerIdentity
from logstore.store import Store
from tests.bridge.histories import check_copy
from tests.clients.lives import warm_up
from tests.kernel import killing
from tests.kernel.killing import kill_in_many, noting, run_as_program
from tests.kernel.victim import DyingFiles, Failed, Victim, Voice, ask

KILLS_PER_DIRECTORY = 12
MEAN_SECONDS = 0.03
HASTY_MS, PATIENT_MS = 400, 60_000
"""How long a request may take: beside brokers that are killed, and at the end, when none is any more."""
CONFIG = StoreConfig(log_cleaner_enable=False, topic=TopicConfig(segment_bytes=16_384))
COMMITTED = Isolation.COMMITTED


class Tried(killing.Tried):
    def __init__(self) -> None:
        super().__init__()
        self.pulled = 0
        self.pushed = 0
        self.aborted = 0
        """Records of transactions at the cluster that a kill has cut short."""


# The two sides ----------------------------------------------------------------------------------------------


def serve(path: str, seed: int, files: Files | None, say: Voice) -> None:
    """Be the cluster, and write to the topic that is pulled."""
    chance = random.Random(seed)
    store = logstore.open(f"{path}/cluster", config=CONFIG, files=files)
    for log in store.require_topic("down", partitions=2):
        for producer, (epoch, _) in log.open_transactions().items():
            log.append_end_marker(producer, epoch, committed=False)
    listener = store.listen(f"{path}/socket")
    say("serves")
    identity = seed % 2**31
    sequences = [0, 0]
    while listener is not None:
        at = chance.randrange(2)
        records = [b"%d" % chance.randrange(10**9) for _ in range(chance.randrange(1, 9))]
        log = store["down"][at]
        log.extend(records, producer=ProducerIdentity(identity, 0, sequences[at], True))
        sequences[at] += len(records)
        if chance.random() < 0.6:
            log.append_end_marker(identity, 0, committed=chance.random() < 0.6)
        time.sleep(chance.expovariate(1 / 0.003))


def rest(path: str, say: Voice) -> None:
    """Be a cluster that nothing else writes to."""
    store = logstore.open(f"{path}/cluster", config=CONFIG)
    listener = store.listen(f"{path}/socket")
    say("serves")
    while listener is not None:
        time.sleep(60)


def go_on(path: str, seed: int, files: Files | None, say: Voice) -> None:
    """Be the edge."""
    chance = random.Random(seed)
    store = logstore.open(f"{path}/edge", config=CONFIG, files=files)
    store.require_topic("up", partitions=2)
    say("opened")
    while True:
        with _connected(path) as cluster:
            try:
                while True:
                    rows = [
                        (b"k%d" % chance.randrange(9), b"%d-%d" % (seed, n))
                        for n in range(chance.randrange(300))
                    ]
                    store["up"].extend(rows)
                    _copy(store, cluster)
                    say("copied")
            except RetriableError:
                continue


def drain(path: str, say: Voice) -> None:
    """Copy what is left, and end cleanly: the high watermarks are stored, too."""
    with logstore.open(f"{path}/edge", config=CONFIG) as store, _connected(path, PATIENT_MS) as cluster:
        _copy(store, cluster)
    say("done")


def _connected(path: str, timeout_ms: int = HASTY_MS) -> RemoteStore:
    while True:
        try:
            return logstore.connect(
                f"{path}/socket", request_timeout_ms=timeout_ms, retry_backoff_ms=5, reconnect_backoff_ms=5
            )
        except RetriableError:
            continue


def _copy(store: Store, cluster: RemoteStore) -> None:
    bridge.pull(cluster, store, "down").run(until_end=True)
    bridge.push(store, cluster, "up", name="edge", linger_ms=0, batch_size=1_000).run(until_end=True)


# Killing ----------------------------------------------------------------------------------------------------


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up(f"{path}/warm")
    return kill_in_many(kill_in_directory, Tried(), path, kills, seed)


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    cluster = _start(serve, path, chance)
    cluster.wait_for_word()
    edge = _start(go_on, path, chance)
    said: list[Any] = []
    for _ in range(min(kills, KILLS_PER_DIRECTORY)):
        which = chance.choice(["cluster", "edge", "both"])
        if chance.random() < 0.8:  # else one may die while it opens its directory, or makes a connection
            _wait_for_copies(edge, chance.randrange(1, 4))
        edge.listen(chance.expovariate(1 / MEAN_SECONDS))
        if which != "cluster":
            said += edge.kill()
        if which != "edge":
            said += cluster.kill()
            cluster = _start(serve, path, chance)
        if which != "cluster":
            edge = _start(go_on, path, chance)
        tried.kills += 1
        tried.moments[which] += 1
    said += edge.kill() + cluster.kill()
    cluster = Victim(functools.partial(rest, path))
    cluster.wait_for_word()
    last = Victim(functools.partial(drain, path)).stop_itself()
    said += last + cluster.kill()
    with noting("the end", path, seed, said):
        for note in said:
            assert not isinstance(note, Failed), note.trace
        assert last == ["done"]
        pulled, pushed, aborted = ask(functools.partial(check, path))
    tried.pulled += pulled
    tried.pushed += pushed
    tried.aborted += aborted
    tried.directories += 1
    shutil.rmtree(path)


def _wait_for_copies(edge: Victim, count: int) -> None:
    """Until it has copied so often; not for long, as the cluster may have ended by itself."""
    until = time.monotonic() + 1
    wanted = edge.said_so_far().count("copied") + count
    while edge.said_so_far().count("copied") < wanted and time.monotonic() < until:
        edge.listen(0.005)


def _start(life: Any, path: str, chance: random.Random) -> Victim:
    seed, files = chance.randrange(2**31), None
    if chance.random() < 0.3:
        operations = int(chance.expovariate(1 / 100)) + 20
        files = DyingFiles(operations, is_before=chance.random() < 0.5)
    return Victim(functools.partial(life, path, seed, files))


def check(path: str) -> tuple[int, int, int]:
    """Records that were pulled and pushed, and those at the cluster that do not count."""
    with (
        logstore.open(f"{path}/cluster", config=CONFIG) as cluster,
        logstore.open(f"{path}/edge", config=CONFIG) as edge,
    ):
        pulled = pushed = aborted = 0
        if "down" in edge:
            check_copy(cluster["down"], edge["down"])
            pulled = sum(len(list(log)) for log in edge["down"])
        for here, there in zip(edge["up"], cluster["up"], strict=True):
            values = [(record.key, record.value, record.timestamp_ms) for record in here]
            found = [(r.key, r.value, r.timestamp_ms) for r in there.read(isolation=COMMITTED)]
            assert found == values, f"{there.partition}: {len(found)} records of {len(values)}"
            pushed += len(found)
            aborted += len(list(there)) - len(found)
            assert there.verify()
        return pulled, pushed, aborted


if __name__ == "__main__":
    run_as_program(__doc__, kill_many)
