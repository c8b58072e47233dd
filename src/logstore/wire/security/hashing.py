"""From passwords to the keys of SCRAM, and back to whether a client has them (RFC 5802, section 3). Bytes in,
bytes out."""

from __future__ import annotations

import hashlib
import hmac

from logstore.logdir.users import ScramCredential, ScramMechanism


def salt_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's ``Hi``. 1 to 9 ms on purpose, during which other threads run."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What a server keeps of a password."""
    stored_key = _stored_key(mechanism, _keyed(mechanism, salted_password, b"Client Key"))
    return ScramCredential(iterations, salt, stored_key, _keyed(mechanism, salted_password, b"Server Key"))


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: bytes) -> bool:
    """Whether a credential is of this password. Takes as long if it is not."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def is_proof(
    mechanism: ScramMechanism, credential: ScramCredential, proof: bytes, auth_message: bytes
) -> bool:
    """Whether a client's proof shows that it knows the password. Takes as long if it does not."""
    if len(proof) != mechanism.key_bytes:
        return False
    signature = _keyed(mechanism, credential.stored_key, auth_message)
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(_stored_key(mechanism, client_key), credential.stored_key)


def server_signature(mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes) -> bytes:
    """Shows the client that the server has the credential."""
    return _keyed(mechanism, credential.server_key, auth_message)


def _stored_key(mechanism: ScramMechanism, client_key: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, client_key).digest()


def _keyed(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
