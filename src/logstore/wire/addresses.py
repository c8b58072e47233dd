"""Where a broker listens: an address of a network interface, or a socket in the file system."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from logstore.arguments import plain_text, shown
from logstore.errors import UsageError

_EXAMPLE: Final = "give one such as '127.0.0.1:9092', '[::1]:9092' or '/run/logstore.sock'"
_ANY_PORT: Final = "; port 0 is any free one"


class Address(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_any(self) -> bool:
        """Whether it means all interfaces, and is no address to connect to."""
        return not self.path and self.host in ("", "0.0.0.0", "::")  # noqa: S104  # it is only compared


def parse_address(text: object, *, to_listen: bool = False) -> Address:
    """The address that a text such as ``127.0.0.1:9092`` stands for. One with a slash is a path.

    Args:
        to_listen: it may be without a host, which means all interfaces, and have the port 0.

    Raises:
        UsageError: it is none.
    """
    text = plain_text(text)
    if isinstance(text, Address):
        return text
    example = f"{_EXAMPLE}{_ANY_PORT}" if to_listen else _EXAMPLE
    if type(text) is not str or not text or "\0" in text:
        raise UsageError(f"{shown(text)} is no address; {example}")
    scheme, separator, _ = text.partition("://")
    if separator and "/" not in scheme:
        raise UsageError(f"{shown(text)} is no address: leave out {scheme + separator!r}; {example}")
    if "/" in text:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{shown(text)}: clients are told the path, and it is no UTF-8; rename it"
            ) from None
        return Address("", 0, text)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"{shown(text)} is no address: put the host in brackets; {example}")
    is_port = port.isascii() and port.isdigit() and int(port) < 65_536
    if not colon or not is_port or not (to_listen or (host and int(port))):
        raise UsageError(f"{shown(text)} is no address; {example}")
    return Address(host, int(port))
