"""How a read reaches brokers, by the options that Spark's Kafka connector passes to Kafka's consumer.

The options are read on the driver. A :class:`Connection` is pickled into tasks, with its password, as the
connector's options are; each process makes its own sockets and its own TLS context. Certificates are PEM, as
Kafka takes them too (KIP-651); stores of Java's own formats need Java.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Final

from logstore.connected import RemoteStore, Sasl, connect
from logstore.errors import UsageError
from logstore.spark.options import SERVERS, Options, wrong_option
from logstore.wire.addresses import parse_address

DEFAULT_PARTITION_BYTES: Final = 4 * 1024 * 1024
"""Of one answer. Kafka: 1 MiB; larger answers are fewer, and a task holds two."""

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS: Final = ("plain", "scram-sha-256", "scram-sha-512")
_JAAS_VALUE: Final = r'\b{}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\')'


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """What a TLS context is made of. Paths are of files that every machine of the job has."""

    authorities_path: str | None
    authorities: str | None
    """PEM text."""
    certificate_path: str | None
    """Our certificate and its key, in one file."""
    password: str | None = field(repr=False)
    checks_hostname: bool

    def context(self) -> ssl.SSLContext:
        """
        Raises:
            UsageError: a file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.authorities_path, cadata=self.authorities)
            context.check_hostname = self.checks_hostname
            if self.certificate_path is not None:
                context.load_cert_chain(self.certificate_path, password=self.password)
        except (OSError, ValueError) as error:  # of which SSLError is one
            files = " and ".join(filter(None, (self.authorities_path, self.certificate_path))) or "PEM text"
            raise UsageError(f"the certificates cannot be read: {error} ({files})") from error
        return context


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Where the brokers are, and how we show who we are. Can be pickled."""

    servers: tuple[str, ...]
    client_id: str
    request_timeout_ms: int
    partition_bytes: int
    """The most that one answer has of a partition."""
    tls: Tls | None
    sasl: Sasl | None

    def open(self) -> RemoteStore:
        """
        Raises:
            RetriableError: no broker answers.
            UsageError: a broker does not let us in, or the certificates cannot be read.
        """
        return connect(
            *self.servers,
            client_id=self.client_id,
            tls=None if self.tls is None else self.tls.context(),
            sasl=self.sasl,
            request_timeout_ms=self.request_timeout_ms,
        )

    def __str__(self) -> str:
        return ",".join(self.servers)


def connection_of(options: Options) -> Connection:
    """
    Raises:
        InvalidConfigError: an option is wrong.
    """
    servers = tuple(each.strip() for each in (options.text(SERVERS) or "").split(","))
    if not all(servers):
        options.refuse(SERVERS, "it must be addresses separated by commas, such as 127.0.0.1:9092")
    try:
        for each in servers:
            parse_address(each)
    except UsageError as error:
        options.refuse(SERVERS, str(error))
    protocol = options.choice("kafka.security.protocol", _PROTOCOLS, default="plaintext")
    _check_stores(options, uses_tls=protocol.endswith("ssl"))
    return Connection(
        servers=servers,
        client_id=options.text("kafka.client.id") or "logstore-spark",
        request_timeout_ms=options.number("kafka.request.timeout.ms") or 30_000,
        partition_bytes=options.number("kafka.max.partition.fetch.bytes") or DEFAULT_PARTITION_BYTES,
        tls=_tls_of(options) if protocol.endswith("ssl") else None,
        sasl=_sasl_of(options) if protocol.startswith("sasl") else None,
    )


def _check_stores(options: Options, *, uses_tls: bool) -> None:
    """Refuse stores that need Java, where they are used or their type is given. The default is Java's own."""
    for store in ("truststore", "keystore"):
        name, place = f"kafka.ssl.{store}.type", f"kafka.ssl.{store}.location"
        is_given = name in options or (uses_tls and place in options)
        if is_given and options.choice(name, ("pem", "jks", "pkcs12"), default="jks") != "pem":
            raise wrong_option(
                f"option {name} must be PEM: a {store} of Java's own formats cannot be read without Java. "
                "`keytool` and `openssl pkcs12` convert it"
            )


def _tls_of(options: Options) -> Tls:
    algorithm = options.choice("kafka.ssl.endpoint.identification.algorithm", ("https", ""), default="https")
    return Tls(
        authorities_path=options.text("kafka.ssl.truststore.location"),
        authorities=options.text("kafka.ssl.truststore.certificates"),
        certificate_path=options.text("kafka.ssl.keystore.location"),
        password=options.text("kafka.ssl.key.password"),
        checks_hostname=algorithm == "https",
    )


def _sasl_of(options: Options) -> Sasl:
    mechanism = options.choice("kafka.sasl.mechanism", (*_MECHANISMS, "gssapi"), default="gssapi")
    if mechanism == "gssapi":
        names = ", ".join(_MECHANISMS).upper()
        raise wrong_option(f"option kafka.sasl.mechanism must be one of {names}")
    login = options.text("kafka.sasl.jaas.config") or ""
    found = [re.search(_JAAS_VALUE.format(name), login) for name in ("username", "password")]
    username, password = ((each[1] if each[1] is not None else each[2]) if each else None for each in found)
    if not username or not password:
        options.refuse(
            "kafka.sasl.jaas.config",
            "it must have a name and a password, as in org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="alice" password="...";',
        )
    return Sasl(username=_unescaped(username), password=_unescaped(password), mechanism=mechanism.upper())


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
