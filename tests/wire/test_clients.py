"""What clients really send: a listener of a few lines answers their first requests, and keeps all frames."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading

import pytest

from logstore.wire.apis import APIS, ApiKey
from logstore.wire.frames import FrameReader, encode_frame
from logstore.wire.headers import decode_request_header, encode_request, encode_response
from logstore.wire.messages.cluster import api_versions, metadata

UNSUPPORTED_VERSION = 35


class Listener:
    """Says which versions there are, and that there is one broker with one topic. Other requests end the
    connection."""

    def __init__(self):
        self.frames = []
        self._accepting = socket.create_server(("127.0.0.1", 0))
        self.address = self._accepting.getsockname()
        self._connections = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self):
        for one in (self._accepting, *self._connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _accept(self):
        while True:
            try:
                connection, _ = self._accepting.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection):
        reader = FrameReader()
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65_536):
                for frame in reader.feed(data):
                    self.frames.append(bytes(frame))
                    if (parts := self._answered(frame)) is None:
                        return
                    connection.sendall(b"".join(encode_frame(parts)))

    def _answered(self, frame):
        header, _ = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS:
            served = tuple(
                api_versions.ServedApi(api.key, api.first_advertised, api.last) for api in APIS.values()
            )
            is_known = version <= APIS[ApiKey.API_VERSIONS].last
            response = api_versions.ApiVersionsResponse(0 if is_known else UNSUPPORTED_VERSION, served)
            version = version if is_known else 0
        elif key == ApiKey.METADATA:
            partition = metadata.Partition(leader_id=1, replicas=(1,), isr=(1,))
            response = metadata.MetadataResponse(
                brokers=(metadata.Broker(1, *self.address),),
                controller_id=1,
                topics=(metadata.Topic(name="orders", partitions=(partition,)),),
            )
        else:
            return None
        return encode_response(response, key, version, correlation_id=header.correlation_id)


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


def check_frames(frames):
    """Each is, but for bytes after it, what the encoder makes of it."""
    surplus = set()
    for frame in frames:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        request, end = APIS[key].request.decode(frame, version, position)
        parts = encode_request(
            request, key, version, correlation_id=header.correlation_id, client_id=header.client_id
        )
        assert b"".join(parts) == frame[:end], (key, version)
        surplus.add(frame[end:])
    return surplus


def test_confluent_kafka(listener):
    """Its request for all topics has three bytes too many: it leaves four for the count, and then needs one.
    What follows them is read from zeros, and three bytes are left over."""
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": "{}:{}".format(*listener.address)})
    found = client.list_topics(timeout=20)
    assert list(found.topics) == ["orders"]
    assert list(found.topics["orders"].partitions) == [0]
    assert {len(surplus) for surplus in check_frames(listener.frames)} <= {0, 3}
    assert {decode_request_header(frame)[0].api_key for frame in listener.frames} == {18, 3}


@pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")
def test_kafka_python(listener, caplog):
    """1 s."""
    caplog.set_level(logging.CRITICAL, "kafka")
    kafka = pytest.importorskip("kafka")
    client = kafka.KafkaAdminClient(bootstrap_servers="{}:{}".format(*listener.address))
    try:
        assert client.list_topics() == ["orders"]
    finally:
        client.close()
    assert check_frames(listener.frames) == {b""}
