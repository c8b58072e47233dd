"""A client of a broker under test: requests go through bytes both ways, as over a connection."""

from __future__ import annotations

from logstore.broker.pending import Pending
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import Call, Endpoint, Node
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.handlers.table import answers_of
from logstore.wire.security.security import Security
from tests.broker.rig import Rig


class Denying(Security):
    """Allows all but what is listed: operation and resource type, and a name or None for all of them."""

    def __init__(self, *denied):
        super().__init__()
        self.denied = denied
        self.noted = []
        """What was denied, and would be written down."""

    def allows_any(self, principal, host, operation, resource_type):
        return self.allows(principal, host, operation, resource_type, None)

    def allows(self, principal, host, operation, resource_type, name, *, is_noted=True):
        is_denied = any(
            (operation, resource_type) == (each[0], each[1]) and each[2] in (None, name)
            for each in self.denied
        )
        if is_denied and is_noted:
            self.noted.append((operation, resource_type, name))
        return not is_denied


class Asking:
    """A client, and the broker that it asks."""

    def __init__(self, rig=None, *, denied=(), host="192.0.2.7", client_id="tests"):
        self.rig = rig or Rig()
        self.node = Node(
            0,
            "cluster",
            Endpoint("localhost", 9092),
            self.rig.broker.topics,
            ListenerConfig(),
            self.rig.broker,
            Denying(*denied),
            group_settings=self.rig.broker.group_settings,
        )
        self.call = Call(self.node, self.rig.broker, "User:tests", host, client_id)

    def begin(self, key, request, version):
        """Ask; what comes is a pending answer, or the answer."""
        message = APIS[key].request
        data = message.encode(request, version)
        decoded, end = message.decode(data, version, 0)
        assert end == len(data)
        return answers_of(key).answer(self.call, decoded, version)

    def end(self, key, given, version):
        """The answer, as the client reads it."""
        result = self.rig.soon(given) if hasattr(given, "poll") else given
        return through(key, result, version)

    def ask(self, key, request, version=None):
        """Ask in a version, or the newest, and read the answer."""
        version = APIS[key].last if version is None else version
        return self.end(key, self.begin(key, request, version), version)


def through(key: ApiKey, response, version):
    """The response after it was sent."""
    message = APIS[key].response
    data = message.encode(response, version)
    decoded, end = message.decode(data, version, 0)
    assert end == len(data)
    return decoded


def is_waiting(given) -> bool:
    """Whether there is no answer yet."""
    pending: Pending = given
    return pending.poll() is None
