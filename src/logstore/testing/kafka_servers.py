"""A Kafka for tests: a real broker in the test's own process, there in milliseconds."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from logstore.arguments import check_callable, did_you_mean, shown
from logstore.config import StoreConfig, TopicConfig, check_store_config
from logstore.errors import UsageError
from logstore.store import Store, open_store
from logstore.warning import warn
from logstore.wire.listener.intercepting import (
    Action,
    Delay,
    Drop,
    DropAnswer,
    HangUp,
    Intercepted,
    Refuse,
)

if TYPE_CHECKING:
    from logstore.wire.apis import ApiKey

_SESSION_MS: Final = 100
"""Of the shortest sessions. Tests of clients do not wait for a broker's six seconds."""
_KEPT_REQUESTS: Final = 10_000
_KEPT_BYTES: Final = 64 * 2**20
"""Of records in requests: a test may send more than fits into memory."""
_ACTIONS: Final = (Delay, Drop, DropAnswer, Refuse, HangUp)

Condition = Callable[[Intercepted], bool]


class _Rule:
    """What happens to some requests."""

    def __init__(self, key: ApiKey, action: Action, times: int | None, when: Condition | None) -> None:
        self.key = key
        self.action = action
        self.left = times
        self.when = when


class _Rules:
    """See :class:`KafkaServers`.

    Lock: ``_lock`` guards the rules and their counts. A condition of a test is called without it, so that it
    may ask for the requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._seen: deque[tuple[Intercepted, int]] = deque()
        """With the bytes of their records."""
        self._seen_bytes = 0
        self.failure: Exception | None = None
        """What the first condition that failed has raised."""

    def add(self, request: str, action: Action, times: int | None, when: Condition | None) -> None:
        if not isinstance(action, _ACTIONS):
            names = ", ".join(each.__name__ for each in _ACTIONS)
            raise UsageError(f"{shown(action)} is nothing to do with a request; give one of {names}")
        if times is not None and (type(times) is not int or times < 1):
            raise UsageError(f"times is {shown(times)}; it must be 1 or more, or None for always")
        if when is not None:
            check_callable(when, "when")
        rule = _Rule(_key_of(request), action, times, when)
        with self._lock:
            self._rules.append(rule)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def seen(self, request: str | None) -> list[Intercepted]:
        key = None if request is None else _key_of(request)
        with self._lock:
            return [each for each, _ in self._seen if key is None or each.key is key]

    def decide(self, request: Intercepted) -> Action | None:
        size_bytes = _records_bytes(request)
        with self._lock:
            self._seen.append((request, size_bytes))
            self._seen_bytes += size_bytes
            while len(self._seen) > 1 and (
                len(self._seen) > _KEPT_REQUESTS or self._seen_bytes > _KEPT_BYTES
            ):
                self._seen_bytes -= self._seen.popleft()[1]
            rules = [each for each in self._rules if each.key is request.key]
        try:
            for rule in rules:
                if (rule.when is None or rule.when(request)) and self._take(rule):
                    return rule.action
        except Exception as error:
            self._fail(error, request.key.name)
            return HangUp()
        return None

    def _fail(self, error: Exception, name: str) -> None:
        """Of a condition: for the end of the test, and for one that does not get there."""
        error.add_note(f"raised by `when` of an interception, of a request {name}; its connection was closed")
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
        warn("a condition of an interception failed:\n%s", "".join(traceback.format_exception(error)))

    def _take(self, rule: _Rule) -> bool:
        """Count a rule; false if it is used up or forgotten by now."""
        with self._lock:
            if rule not in self._rules:
                return False
            if rule.left is not None:
                rule.left -= 1
                if not rule.left:
                    self._rules.remove(rule)
        return True


def _records_bytes(request: Intercepted) -> int:
    """Only Produce has records."""
    if request.key.name != "PRODUCE":
        return 0
    return sum(len(each.records or b"") for topic in request.request.topics for each in topic.partitions)


class KafkaServers(str):
    """The address of a broker for tests, as clients take it for ``bootstrap.servers``; and what else a test
    may want of the broker."""

    store: Store
    """The broker's topics, to look at or to fill without a client."""
    _rules: _Rules

    def __new__(cls, address: str, store: Store, rules: _Rules) -> Self:
        servers = super().__new__(cls, address)
        servers.store = store
        servers._rules = rules
        return servers

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Another process, to which it is given, gets the address: the broker is in this one."""
        return str, (str(self),)

    def intercept(
        self,
        request: str,
        action: Action,
        *,
        times: int | None = 1,
        when: Condition | None = None,
    ) -> None:
        """Do something else with the next requests of a kind.

        Args:
            request: Kafka's name for it, such as ``Produce``.
            action: :class:`Refuse`, :class:`Delay`, :class:`Drop`, :class:`DropAnswer` or :class:`HangUp`.
            times: how often; None is always.
            when: whether it holds for a request, by what is in it. If it raises an exception, the connection
                is closed, and the end of the ``with`` block raises it.

        Raises:
            UsageError: there is no such request, or the action is none.
        """
        self._rules.add(request, action, times, when)

    def let_through(self) -> None:
        """Forget all interceptions."""
        self._rules.clear()

    def requests(self, request: str | None = None) -> list[Intercepted]:
        """The requests that have come so far, of one kind or all, in their order. The newest are kept:
        10,000, and no more than have 64 MiB of records together.

        Raises:
            UsageError: there is no such request.
        """
        return self._rules.seen(request)


def _key_of(request: str) -> ApiKey:
    from logstore.wire.apis import APIS  # takes as long to import as all else of the test kit

    keys = {api.name: key for key, api in APIS.items()}
    if request not in keys:
        raise UsageError(f"there is no request {shown(request)}{did_you_mean(request, keys)}")
    return keys[request]


def _create(store: Store, name: str, partition_count: int) -> None:
    """
    Raises:
        UsageError: the topic cannot be made; the message names it.
    """
    try:
        store.create_topic(name, partitions=partition_count)
    except UsageError as error:
        raise UsageError(f"topics: {shown(name)}: {error}") from error


class _Directory:
    """An empty directory that goes at the end, or with the process. A forked child that ends like a program,
    and not by ``os._exit``, would take it from its parent."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="logstore-kafka-")
        self._stores: list[Store] = []
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid(), self._stores)

    def open_store(self, config: StoreConfig) -> Store:
        """A store in it, which is closed before the directory goes."""
        store = open_store(self.path, config=config)
        self._stores.append(store)
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _remove(path: str, process_id: int, stores: list[Store]) -> None:
    if os.getpid() != process_id:
        return
    for store in stores:  # nobody has closed it: its `with` block is not at its end, and the process is
        with suppress(Exception):
            store.close()
    stores.clear()
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):  # as when no more files may be open now
        atexit.register(_remove, path, process_id, stores)


@contextmanager
def kafka(
    *,
    topics: dict[str, int] | None = None,
    topic: TopicConfig | None = None,
    config: StoreConfig | None = None,
    **settings: Any,
) -> Iterator[KafkaServers]:
    """A broker for the length of a ``with`` block, on a free port of this machine, in an empty directory that
    is removed at its end, or at that of the process.

    The directory is ``logstore-kafka-...``, where Python has its temporary files (``TMPDIR``). A process that
    is killed leaves it there.

    It is the same broker as that of :meth:`.Store.listen`, with two differences: ``acks=all`` does not wait
    for the disk, as with a broker's defaults, as the directory is lost at the end anyway; and members of
    groups may have sessions of 100 ms.

    Args:
        topics: names and numbers of partitions to begin with. Others are created when clients ask for them.
        topic: the settings of topics that are created without their own, in place of those in ``config``;
            ``acks_all_durable`` is always off.
        config: the settings of the store, such as those of groups and transactions. Members of groups may
            have sessions of 100 ms whatever it says.
        settings: of the listener, such as ``num_partitions``; see :meth:`.Store.listen`.

    Raises:
        InvalidConfigError: a setting is unknown or out of range, or ``config`` is no ``StoreConfig``.
        UsageError: ``topics`` is no dict of names and numbers, or ``topic`` no ``TopicConfig``; or the
            settings have ``intercept``.

    Cost: about 10 ms, two threads, six open files and 0.1 MB of memory; 13 MB for the first of a process.
    """
    if topics is not None and not isinstance(topics, dict):
        raise UsageError(f'topics is {shown(topics)}; it must be a dict such as {{"orders": 3}}')
    if topic is not None and not isinstance(topic, TopicConfig):
        raise UsageError(
            f"topic is {shown(topic)}; it must be a TopicConfig, such as TopicConfig(retention_ms=60_000)"
        )
    if "intercept" in settings:
        raise UsageError("intercept is taken by the broker for tests: call intercept() of what it gives")
    given = check_store_config(config) or StoreConfig()
    config = replace(
        given,
        topic=replace(topic or given.topic, acks_all_durable=False),
        group_min_session_timeout_ms=min(_SESSION_MS, given.group_min_session_timeout_ms),
    )
    rules = _Rules()
    with _Directory() as directory:
        with directory.open_store(config) as store:
            for name, count in (topics or {}).items():
                _create(store, name, count)
            with store.listen(intercept=rules.decide, **settings) as listener:
                yield KafkaServers(listener.address, store, rules)
        if rules.failure is not None:
            raise rules.failure
