"""Our clients to a stock broker that wants TLS and a password. Costs 8 s to start the broker, and 1 s."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import logstore
from logstore.connected import Sasl, connect
from tests.interop.kafka import KafkaBroker, require_kafka

pytestmark = pytest.mark.interop

SECONDS = 20
PASSWORD = "pe\u0301ncil \ufb01"  # SASLprep would change it; Kafka does not
PLAIN = Sasl(username="admin", password="admin-secret", mechanism="PLAIN")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """One for 127.0.0.1 that signs itself: the key and the certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the path")
    folder = tmp_path_factory.mktemp("certificate")
    key, made = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True)
    return key, made


@pytest.fixture(scope="module")
def kafka(tmp_path_factory, certificate):
    require_kafka()
    key, made = certificate
    both = made.with_name("both.pem")
    both.write_text(key.read_text() + made.read_text())
    login = "org.apache.kafka.common.security"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f"{login}.plain.PlainLoginModule required "
            f'username="admin" password="{PLAIN.password}" user_admin="{PLAIN.password}";'
        ),
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": made,
        "connections.max.reauth.ms": 3_000,
    }
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), config=settings) as started:
        add_user(started, certificate[1])
        yield started


def add_user(kafka, certificate):
    """With both SCRAM mechanisms; the name has what SCRAM escapes."""
    admin = AdminClient(
        {
            "bootstrap.servers": kafka.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": PLAIN.username,
            "sasl.password": PLAIN.password,
            "ssl.ca.location": str(certificate),
        }
    )
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(kind, 4096)
        alteration = UserScramCredentialUpsertion("o=n,e", info, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([alteration]).values():
            done.result(SECONDS)


@pytest.fixture
def tls(certificate):
    return ssl.create_default_context(cafile=certificate[1])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_come_and_go(kafka, tls, mechanism):
    """3 MB: more than one TLS record, and more than a socket takes at once."""
    sasl = PLAIN if mechanism == "PLAIN" else Sasl(username="o=n,e", password=PASSWORD, mechanism=mechanism)
    topic = f"t-{mechanism}"
    with connect(kafka.bootstrap, tls=tls, sasl=sasl) as store:
        store.create_topic(topic)
        values = [bytes([number]) * 100_000 for number in range(30)]
        with store.producer() as producer:
            for value in values:
                producer.send(topic, value)
        with store.consumer(topic) as consumer:
            found = []
            while len(found) < len(values):
                found += [each.value for each in consumer.poll(SECONDS)]
        assert found == values


def test_a_connection_says_again_who_it_is(kafka, tls):
    """KIP-368: the broker ends connections that do not. 4 s."""
    with connect(kafka.bootstrap, tls=tls, sasl=PLAIN) as store:
        store.require_topic("again")
        with store.producer(linger_ms=0) as producer:
            offsets = []
            deadline = logstore.clock.SystemClock().monotonic_ms() + 4_000
            while logstore.clock.SystemClock().monotonic_ms() < deadline:
                offsets.append(producer.send("again", b"a").result(SECONDS).offset)
        assert offsets == list(range(len(offsets)))


def test_a_wrong_password(kafka, tls):
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        sasl = Sasl(username="admin", password="wrong", mechanism=mechanism)
        with pytest.raises(logstore.UsageError, match=r"refuses user 'admin'.*[Aa]uthentication failed"):
            connect(kafka.bootstrap, tls=tls, sasl=sasl)


def test_a_broker_that_is_not_trusted(kafka):
    with pytest.raises(logstore.RetriableError, match="certificate verify failed"):
        connect(kafka.bootstrap, tls=ssl.create_default_context(), sasl=PLAIN, request_timeout_ms=500)


def test_a_client_without_tls(kafka):
    with pytest.raises(logstore.RetriableError, match=r"closed the connection|frame of"):
        connect(kafka.bootstrap, request_timeout_ms=500)
