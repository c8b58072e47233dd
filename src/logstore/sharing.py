"""A store that several processes of one machine use: the first to come owns it, the others go through it.
What :func:`open_or_connect` returns.

One process has the directory open and shares it through a socket in it. When it ends, or is killed, another
of them opens the directory. Producers, consumers and workers go on: to them it is a broker that was away for
a moment. An owner whose directory was moved, removed or replaced gives it up, and then does as the others:
it goes through the owner of what is there now, or opens that.

Lock: ``SharedStore._lock`` guards which store is owned. It is held while a store is opened or closed, and
nothing else waits for it but the end.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

from logstore.arguments import plain_text
from logstore.config import StoreConfig
from logstore.connected import RemoteConfig, RemoteStore
from logstore.errors import FencedError, LockedError, LogstoreError, RetriableError
from logstore.files import OsFiles, PathLike, check_path
from logstore.format.names import SHARED_NAME
from logstore.logdir.quotas import check_client_name
from logstore.partition.state.home import LOCK_NAME
from logstore.schedule import start_thread
from logstore.store import Store, check_no_address, open_store
from logstore.warning import inform, is_due, warn
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.listener.listener import Listener
from logstore.wire.remote.broker import CLIENT_ID, RemoteBroker

_LOOK_SECONDS: Final = 0.02
"""How often a process that does not own the directory tries to. An owner that ends is missed for so long."""
_HELD_SECONDS: Final = 1.0
"""How often the owner looks whether the directory is still its."""
_BACKOFF_SECONDS: Final = 1.0
"""After an attempt that failed for another reason than that there is an owner."""


def open_or_connect(
    path: PathLike,
    *,
    client_id: str = CLIENT_ID,
    config: StoreConfig | None = None,
    listener: ListenerConfig | None = None,
    **settings: Any,
) -> SharedStore:
    """Use a store together with other processes of this machine and user, that call the same.

    ::

        with logstore.open_or_connect("data") as store:
            with store.producer() as producer:
                producer.send("orders", b"paid")

    The first process to come opens the directory; the others go through it. When it ends, another takes over
    within some milliseconds, and after a kill when it has recovered the directory. Producers and consumers go
    on meanwhile: what they ask waits.

    Args:
        path: the directory; made if it does not exist.
        client_id: what the program is called, in groups and for quotas.
        config: the store's settings, for when this process owns it: give all processes the same.
        listener: likewise, of its socket.
        settings: of the connection, see :class:`~logstore.connected.RemoteConfig`.

    Raises:
        UsageError: the path is not a store; or it is not there, and looks like the address of a broker.
        RetriableError: a process has the directory open and does not share it, or does not answer within
            ``request_timeout_ms``.
        StorageError, CorruptionError: this process is the first, and cannot open it.
        InvalidConfigError: an unknown name or a bad value.
    """
    name = check_path(path)
    check_no_address(name)
    check_client_name("client_id", client_id, least=0)
    shared = SharedStore(name, plain_text(client_id), config, listener, RemoteConfig(**settings))
    try:
        shared.check()
    except BaseException as error:
        shared.close()
        if type(error) is RetriableError:
            raise RetriableError(f"{error}{_holder_of(shared.path)}") from None
        raise
    return shared


def _holder_of(path: str) -> str:
    """Which process has a directory, as the end of an error."""
    try:
        OsFiles().lock(f"{path}/{LOCK_NAME}").release()
    except LockedError as error:
        return f" ({error.held})"
    except LogstoreError:
        pass  # what was tried says enough
    return ""


class SharedStore(RemoteStore):
    """A store that several processes use. Use it in a ``with`` statement, or call :meth:`close`: then another
    process takes over, if this one owned the directory. Made by :func:`open_or_connect`."""

    def __init__(
        self,
        path: str,
        client_id: str,
        config: StoreConfig | None,
        listener: ListenerConfig | None,
        remote: RemoteConfig,
    ) -> None:
        self._files = OsFiles()
        self.path = self._files.absolute(path)
        """The absolute path of the directory."""
        self._store_config = config
        self._listener_config = listener
        self._lock = threading.Lock()
        self._owned: tuple[Store, Listener] | None = None
        self._ended = threading.Event()
        self._try_to_own()
        broker: RemoteBroker | None = None
        try:
            broker = RemoteBroker(f"{self.path}/{SHARED_NAME}", client_id=client_id, config=remote)
            super().__init__(broker, remote)
            self._keeper = start_thread(self._keep, "logstore-keeper", what="to share a store")
        except BaseException:
            if broker is not None:
                broker.close()
            self._let_go()
            raise

    @property
    def is_owner(self) -> bool:
        """Whether this process has the directory open now."""
        return self._owned is not None

    @property
    def store(self) -> Store | None:
        """The open store, if this process owns it: for what needs its files, such as
        :meth:`.Store.compact`. None otherwise."""
        owned = self._owned
        return None if owned is None else owned[0]

    def _try_to_own(self, *, create: bool = True) -> bool:
        """Returns whether this process owns the directory now.

        Args:
            create: make the directory if it is not there.

        Raises:
            FencedError: this process has owned it, and lost it: it was moved, removed or replaced.
            LogstoreError: it cannot be opened, and not because another process has it open.
        """
        with self._lock:
            if self._owned is not None:
                store, listener = self._owned
                store.directory.check_lock()
                if listener.is_name_gone:
                    warn("%s was removed; it is made again", listener.address)
                    listener.close()
                    self._share(store)
                return True
            if self._ended.is_set() or self._files.is_locked(f"{self.path}/{LOCK_NAME}"):
                return False  # to ask costs a tenth of being refused, and each process asks all the time
            try:
                store = open_store(self.path, create=create, config=self._store_config)
            except LockedError:
                return False
            self._share(store)
        inform("this process owns %s now", self.path)
        return True

    def _share(self, store: Store) -> None:
        try:
            self._owned = store, store.share(config=self._listener_config)
        except BaseException:
            self._owned = None
            store.close()
            raise

    def _give_up(self, why: FencedError) -> None:
        """Own no more what was moved, removed or replaced. What is not written by now cannot be."""
        warn("this process does not own %s any more: %s", self.path, why)
        with suppress(LogstoreError):
            self._let_go()

    def _let_go(self) -> None:
        """Close the store, if this process owns it.

        Raises:
            StorageError: something could not be made durable.
        """
        with self._lock:
            owned, self._owned = self._owned, None
        if owned is not None:
            store, listener = owned
            listener.close()
            store.close()

    def _keep(self) -> None:
        """Own the directory whenever no other process does, and only while it is there; until the end."""
        seconds = _LOOK_SECONDS
        told_at: dict[str, float] = {}
        while not self._ended.wait(seconds):
            try:
                # what was taken away is not made again
                seconds = _HELD_SECONDS if self._try_to_own(create=False) else _LOOK_SECONDS
            except FencedError as error:
                self._give_up(error)
                seconds = _LOOK_SECONDS
            except LogstoreError as error:
                if is_due(told_at, str(error)):
                    warn("%s cannot be taken over; it is tried again: %s", self.path, error)
                seconds = _BACKOFF_SECONDS
            except Exception as error:  # a thread that ended would never take over
                if is_due(told_at, str(error)):
                    warn("taking over %s failed: %s: %s", self.path, type(error).__name__, error)
                seconds = _BACKOFF_SECONDS

    def close(self) -> None:
        """Deliver what producers still have, leave groups, and let another process take over. You may call it
        again. In a forked child it does nothing.

        Raises:
            StorageError: something could not be made durable.
        """
        if self._fork_flag.is_forked:
            return
        super().close()
        self._ended.set()
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        self._let_go()

    def __repr__(self) -> str:
        role = "its owner" if self.is_owner else "closed" if self._is_closed else "through its owner"
        return f"<SharedStore {self.path!r}: {role}>"
