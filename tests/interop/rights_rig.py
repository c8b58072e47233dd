"""A broker of Kafka and the handlers of a listener, which allow everything but what they are told to deny."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import CLUSTER_NAME
from logstore.wire.messages.security import create_acls, delete_acls
from logstore.wire.messages.topics import create_topics
from tests.interop import kafka
from tests.interop.admin_steps import Side
from tests.interop.request_steps import NOW_MS
from tests.wire.handlers.rig_admin import AdminRig

Resources = tuple[tuple[ResourceType, str], ...]
TOPICS: Final = ((ResourceType.TOPIC, "t"), (ResourceType.TOPIC, "x"))
CLUSTER: Final = ((ResourceType.CLUSTER, CLUSTER_NAME),)
DENY, ALLOW, ANY = 2, 3, 1


class Broker(Side):
    """A broker that allows everything but what it is told to deny."""

    def prepare(self) -> None:
        topics = self.ask(ApiKey.CREATE_TOPICS, topics=(create_topics.Topic("t", 2, 1),)).topics
        assert [each.error_code for each in topics] == [0]
        self.ids = {each.name: each.topic_id for each in topics}
        self._add(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL, ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            self._add(kind, "*", Operation.ALL, ALLOW)

    def deny(self, operation: Operation, resources: Resources) -> None:
        for kind, name in resources:
            self._add(kind, name, operation, DENY)

    def allow_again(self) -> None:
        every = delete_acls.Filter(ANY, None, ANY, None, None, ANY, DENY)
        (found,) = self.ask(ApiKey.DELETE_ACLS, filters=(every,)).filters
        assert found.error_code == 0

    def _add(self, kind: int, name: str, operation: int, permission: int) -> None:
        rule = create_acls.Acl(kind, name, 3, "User:ANONYMOUS", "*", operation, permission)
        (found,) = self.ask(ApiKey.CREATE_ACLS, creations=(rule,)).results
        assert found.error_code == 0, found


class Store(Side):
    """The handlers, with rights."""

    def __init__(self) -> None:
        self.rig, self.node_id = AdminRig(), 0
        self.rig.pass_time(NOW_MS - self.rig.clock.now_ms())
        topic_id = self.rig.directory.topic("t").topic_id
        assert topic_id is not None
        self.ids = {"t": topic_id}

    def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        return self.rig.send_message(key, APIS[key].request.kind(**fields), version)

    def deny(self, operation: Operation, resources: Resources) -> None:
        self.rig.rights.denied = {(operation, *each) for each in resources}


@contextmanager
def both(home: Path) -> Iterator[tuple[Broker, Store]]:
    """Side by side, with the topic ``t``."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with kafka.KafkaBroker(home, config=config) as running:
        broker = Broker(running.bootstrap, 1)
        broker.prepare()
        yield broker, Store()
        broker.client.close()
