"""What a client is shown of a user that does not exist: a credential that looks like one of those that do.

It has to stay the same from one try to the next, also after a restart: a client may ask twice. So it follows
from the name and a secret key. Its shape (how many iterations, how long a salt, of which characters) is that
of some stored credential. Which one is chosen by the name too, so that new users rarely change it (rendezvous
hashing).
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Collection
from typing import Final, NamedTuple

from logstore.logdir.users import ScramCredential, ScramMechanism

_BASE36: Final = (string.digits + string.ascii_lowercase).encode()
"""Of what the salts are that Kafka's own tools make."""


class Shape(NamedTuple):
    """What tells credentials apart from the outside."""

    mechanism: ScramMechanism
    iterations: int
    salt_bytes: int
    is_base36: bool


def shape_of(mechanism: ScramMechanism, credential: ScramCredential) -> Shape:
    """The shape of a stored credential."""
    is_base36 = not credential.salt.strip(_BASE36)
    return Shape(mechanism, credential.iterations, len(credential.salt), is_base36)


def mock_credential(
    key: bytes, name: str, shapes: Collection[Shape]
) -> tuple[ScramMechanism, ScramCredential]:
    """The credential that a user would have. It has no password."""
    shape = max(shapes, key=lambda each: _stream(key, repr(tuple(each)), name, 8))
    salt = _stream(key, "salt", name, shape.salt_bytes)
    if shape.is_base36:
        salt = bytes(_BASE36[each % len(_BASE36)] for each in salt)
    size = shape.mechanism.key_bytes
    keys = _stream(key, "keys", name, 2 * size)
    return shape.mechanism, ScramCredential(shape.iterations, salt, keys[:size], keys[size:])


def _stream(key: bytes, purpose: str, name: str, size_bytes: int) -> bytes:
    """As many bytes as wanted; they tell nothing of the key, nor of each other."""
    label = purpose.encode()
    return hashlib.shake_256(key + bytes([len(label)]) + label + name.encode()).digest(size_bytes)
