"""A directory in memory, a client that shows each step of a login, and a connection without its sockets."""

import base64
import hashlib
import hmac

from logstore.logdir.acls import CLUSTER_NAME, ResourceType
from logstore.logdir.directory import LogDirectory
from logstore.testing import ManualClock, MemoryFiles
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.security import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
    sasl_authenticate,
    sasl_handshake,
)
from logstore.wire.security.audit import note_failed_login

PASSWORD = "correct horse, battery = staple ß"


def open_directory(files=None):
    return LogDirectory("/data", files=files or MemoryFiles(), clock=ManualClock(), seed=1)


def b64(data):
    return base64.b64encode(data).decode()


class Client:
    """SCRAM's client as RFC 5802 writes it, one line a step, so that each can be got wrong."""

    def __init__(self, name, password, *, hash_name="sha256", nonce="fyko+d2lbbFgONRv9qkxdawL"):
        self.hash_name, self.nonce, self.password = hash_name, nonce, password
        self.header = "n,,"
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"

    @property
    def first(self):
        return (self.header + self.bare).encode()

    def final(self, server_first, *, nonce_prefix="", channel=None, extensions=""):
        self.server_first = server_first.decode()
        values = dict(each.split("=", 1) for each in self.server_first.split(","))
        salt, iterations = base64.b64decode(values["s"]), int(values["i"])
        self.salted = hashlib.pbkdf2_hmac(self.hash_name, self.password.encode(), salt, iterations)
        bound = b64(self.header.encode()) if channel is None else channel
        unproved = f"c={bound},r={nonce_prefix}{values['r']}{extensions}"
        self.auth_message = f"{self.bare},{self.server_first},{unproved}".encode()
        client_key = self.keyed(self.salted, b"Client Key")
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        signature = self.keyed(stored_key, self.auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproved},p={b64(proof)}".encode()

    def keyed(self, key, message):
        return hmac.digest(key, message, self.hash_name)

    def check(self, server_final):
        signature = self.keyed(self.keyed(self.salted, b"Server Key"), self.auth_message)
        assert server_final == f"v={b64(signature)}".encode()


def log_in(sasl, client, **wrong):
    """A whole login."""
    client.check(sasl.evaluate(client.final(sasl.evaluate(client.first), **wrong)))


HANDLERS = {
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
}


class Connection:
    """A client's connection, without the sockets."""

    def __init__(self, security, principal="User:admin", host="10.0.0.1"):
        self.security, self.host = security, host
        self.users, self.acls, self.sasl = security.users, security.acls, security.sasl_server()
        self.session_lifetime_ms = 60_000
        self._principal = principal

    @property
    def principal(self):
        return (self.sasl and self.sasl.principal) or self._principal

    def allows(self, operation, resource_type, name):
        return self.security.allows(self.principal, self.host, operation, resource_type, name)

    def note_failed_login(self, claimed, mechanism, reason):
        note_failed_login(claimed, self.host, mechanism, reason)

    def allows_cluster(self, operation):
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def ask(self, key, request):
        api = APIS[key]
        version = api.last
        request, _ = api.request.decode(api.request.encode(request, version), version)
        answer = HANDLERS[key].answer(self, request, version)
        return api.response.decode(api.response.encode(answer, version), version)[0]
