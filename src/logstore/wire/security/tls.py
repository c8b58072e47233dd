"""TLS of listeners and of clients: a context from files, and a new one when they change.

Certificates are renewed while a program runs. So each new connection asks for the context, and the files are
looked at: up to three calls of ``stat``, 11 µs. Connections that exist keep theirs.
"""

from __future__ import annotations

import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from logstore.arguments import check_flag, shown
from logstore.errors import StorageError, UsageError
from logstore.files import Files, FileStamp, OsFiles, PathLike, check_path
from logstore.warning import warn

Stamps = tuple[FileStamp | None, ...]

_MOST_READ: Final = 1_000_000
"""Bytes of a file that may be any."""


class _Renewed(ABC):
    """What makes a context from files, and another when they have changed.

    Lock: ``_lock`` is held while the files are loaded. A connection that finds them unchanged does not wait.
    """

    def __init__(self, paths: Iterable[PathLike | None], password: str | None, files: Files | None) -> None:
        if password is not None and type(password) is not str:
            raise UsageError(f"password is a {type(password).__name__}; it must be text, or None")
        self._paths = tuple(None if each is None else check_path(each, "a PEM file") for each in paths)
        self._password = password
        self._files = files or OsFiles()
        self._lock = threading.Lock()
        self._seen: Stamps | None = self._look()
        self._context = self._load()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._paths[0]}>"

    def context(self) -> ssl.SSLContext:
        """For a new connection. If the files have changed they are loaded again. If that fails, the context
        stays as it was, and a warning says why; it is tried again when a file changes once more."""
        if self._look_or_none() != self._seen:
            with self._lock:
                self._reload_locked()
        return self._context

    def _reload_locked(self) -> None:
        seen = self._look_or_none()
        if seen == self._seen:
            return
        # First: a file that changes while it is loaded is found changed by the next connection.
        self._seen = seen
        try:
            self._context = self._load()
        except (UsageError, StorageError) as error:
            warn("new connections get the earlier certificate: %s", error)

    def _look(self) -> Stamps:
        """
        Raises:
            StorageError: a file cannot be found.
        """
        return tuple(None if path is None else self._files.stamp(path) for path in self._paths)

    def _look_or_none(self) -> Stamps | None:
        """None while a file is missing, as it may be while it is replaced."""
        try:
            return self._look()
        except StorageError:
            return None

    def _load(self) -> ssl.SSLContext:
        """
        Raises:
            UsageError: OpenSSL does not take the files.
        """
        try:
            return self._make()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            names = ", ".join(dict.fromkeys(str(each) for each in self._paths if each is not None))
            says_why = getattr(error, "library", None) == "X509"  # of roots, and of a key that does not fit
            why = (None if says_why else self._why_not()) or str(error)
            raise UsageError(
                f"OpenSSL does not take the certificate, key or roots in {names}: {why}"
            ) from None

    def _why_not(self) -> str | None:
        """What is wrong with the certificate or its key, where OpenSSL says only that something is."""
        certificate, key = self._chain()
        if certificate is None:
            return None
        key = certificate if key is None else key
        try:
            if not _has(certificate, b"BEGIN CERTIFICATE", b"BEGIN TRUSTED CERTIFICATE"):
                return f"{certificate} has no certificate"
            if not _has(key, b"PRIVATE KEY"):
                return f"{key} has no private key; name the file that has it as key"
            if not _has(key, b"ENCRYPTED"):
                return None
        except OSError:  # OpenSSL's words are the better ones
            return None
        if self._password is None:
            return f"the key in {key} is encrypted; it takes its password, or a copy that is not encrypted"
        return f"the key in {key} is encrypted, and the password may be a wrong one"

    @abstractmethod
    def _chain(self) -> tuple[PathLike | None, PathLike | None]:
        """The files of the certificate and of its key, among the paths."""

    @abstractmethod
    def _make(self) -> ssl.SSLContext:
        """The context, from what the files say now."""


class ServerTls(_Renewed):
    """The certificate of a server, and which clients have to show one."""

    def __init__(
        self,
        certificate: PathLike,
        key: PathLike | None = None,
        *,
        client_ca: PathLike | None = None,
        require_client_certificate: bool = False,
        password: str | None = None,
        files: Files | None = None,
    ) -> None:
        """
        Args:
            certificate: file in PEM with the server's certificate, followed by those up to the root.
            key: file in PEM with its private key; None if it is in the same file.
            client_ca: file in PEM with the roots of clients' certificates. None: clients are not asked for
                one.
            require_client_certificate: refuse clients without a certificate. Otherwise they are anonymous, or
                log in with SASL.
            password: of the key, if it is encrypted.
            files: where to look for changes; None: the machine's disk, from which OpenSSL reads in any case.

        Raises:
            UsageError: OpenSSL does not take the files, or a client's certificate is required without roots.
            StorageError: a file cannot be found.
        """
        self._is_required = check_flag(require_client_certificate, "require_client_certificate")
        if self._is_required and client_ca is None:
            raise UsageError("require_client_certificate needs client_ca: whose certificates are taken")
        super().__init__((certificate, certificate if key is None else key, client_ca), password, files)

    @property
    def requires_client_certificate(self) -> bool:
        """Whether clients without one are refused."""
        return self._is_required

    def _chain(self) -> tuple[PathLike | None, PathLike | None]:
        return self._paths[0], self._paths[1]

    def _make(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(str(certificate), key, password=self._password or "")
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED if self._is_required else ssl.CERT_OPTIONAL
            context.load_verify_locations(client_ca)
        return context


class ClientTls(_Renewed):
    """Whose certificates a client takes, and which one it shows: for ``tls`` of :func:`logstore.connect`, and
    for ``peer_tls`` of a node. An :class:`ssl.SSLContext` does the same, and never looks at files again."""

    def __init__(
        self,
        ca: PathLike | None,
        certificate: PathLike | None = None,
        key: PathLike | None = None,
        *,
        password: str | None = None,
        files: Files | None = None,
    ) -> None:
        """
        Args:
            ca: file in PEM with the roots of servers' certificates; None: those that the machine trusts.
            certificate: file in PEM with the client's own, for servers that ask for one.
            key: file in PEM with its private key; None if it is in the same file.
            password: of the key, if it is encrypted.
            files: where to look for changes; None: the machine's disk, from which OpenSSL reads in any case.

        Raises:
            UsageError: OpenSSL does not take the files, or there is a key and no certificate.
            StorageError: a file cannot be found.
        """
        if key is not None and certificate is None:
            raise UsageError("a key needs the certificate that it is of")
        super().__init__((ca, certificate, key), password, files)

    def _chain(self) -> tuple[PathLike | None, PathLike | None]:
        return self._paths[1], self._paths[2]

    def _make(self) -> ssl.SSLContext:
        ca, certificate, key = self._paths
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key, password=self._password or "")
        return context


def _has(path: PathLike, *markers: bytes) -> bool:
    """Whether a file has one of the lines that say what is in it."""
    with open(path, "rb") as file:
        text = file.read(_MOST_READ)
    return any(each in text for each in markers)


def check_client_tls(given: object, name: str) -> None:
    """
    Raises:
        UsageError: an argument is neither a context, nor what makes one, nor None.
    """
    if given is not None and not isinstance(given, ssl.SSLContext | ClientTls):
        raise UsageError(f"{name} is {shown(given)}; it must be an ssl.SSLContext or a ClientTls, or None")
