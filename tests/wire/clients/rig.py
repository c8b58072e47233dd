"""A store with a listener of each kind of security, which remembers the requests of each client."""

from __future__ import annotations

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import logstore
from logstore.format.header import BatchHeader, decode_header
from logstore.security import ServerTls
from logstore.wire.apis import APIS
from tests.wire.security.certificates import Authority

PASSWORD = "a secret of some length"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER = "alice"


class Rig:
    """Everything that the features need of a broker.

    A client gives its task's name as its client id, so that :meth:`seen` tells the requests of one feature.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._requests: list[Any] = []

    def __enter__(self) -> Rig:
        home = Path(self._stack.enter_context(TemporaryDirectory(prefix="logstore-clients-")))
        ours, other = Authority(home / "ours"), Authority(home / "other")
        self.authority, self.other_authority = ours.root, other.root
        settings = logstore.TopicConfig(acks_all_durable=False)
        config = logstore.StoreConfig(topic=settings)
        self.store = self._stack.enter_context(logstore.open(home / "store", config=config))
        self.store.users.set_password(USER, PASSWORD)
        shared = {"intercept": self._note, "authorize": True, "super_users": f"User:ANONYMOUS;User:{USER}"}
        tls = ServerTls(*ours.certify("server", "/CN=logstore", addresses=["127.0.0.1"]))
        mechanisms = ",".join(MECHANISMS)
        self.addresses = {
            "PLAINTEXT": self._listen(**shared),
            "SSL": self._listen(tls=tls, **shared),
            "SASL_PLAINTEXT": self._listen(sasl_enabled_mechanisms=mechanisms, **shared),
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _listen(self, **settings: Any) -> str:
        return self._stack.enter_context(self.store.listen("127.0.0.1:0", **settings)).address

    def _note(self, request: Any) -> None:
        self._requests.append(request)

    def seen(self, name: str, client_id: str) -> list[Any]:
        """The requests of a kind that a client has sent. kafkajs and others add to the client id."""
        return [
            each.request
            for each in list(self._requests)
            if APIS[each.key].name == name and (each.client_id or "").startswith(client_id)
        ]

    def first_header(self, topic: str) -> BatchHeader:
        """That of the first batch of partition 0."""
        log = self.store[topic][0]
        with open(Path(log.directory) / f"{log.log_start_offset:020}.log", "rb") as file:
            return decode_header(file.read(100))
