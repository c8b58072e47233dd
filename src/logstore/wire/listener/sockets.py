"""The sockets of listeners."""

from __future__ import annotations

import socket
from typing import Final

from logstore import unix_sockets
from logstore.errors import StorageError, UsageError, socket_error
from logstore.wire.addresses import Address

_BACKLOG: Final = 1024


def open_socket(address: Address) -> socket.socket:
    """A socket that listens there.

    Raises:
        StorageError: the system refuses: the address is in use, say, or not this machine's.
        UsageError: the host is not known.
    """
    if address.path:
        return unix_sockets.listen_at(address.path)
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error}") from None
    family, kind, protocol, _, where = found[0]
    try:
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise refused(address, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise refused(address, error) from error
    return listening


def refused(address: Address, error: OSError) -> StorageError:
    """The system does not let us listen, which ``error`` says."""
    return socket_error(error, f"cannot listen on {address}")


def bound_address(address: Address, listening: socket.socket) -> Address:
    """The address with the port that the system has chosen."""
    if address.path:
        return address
    host, port, *_ = listening.getsockname()
    return Address(host, port)
