"""Envelopes: each secret under a random data key of its own, which a key-encryption key wraps.

    wrapped key   nonce (12) | AES-256-GCM of the data key under the key `kid`
    ciphertext    nonce (12) | AES-256-GCM of the value under the data key

Both carry `v1|tenant|secret id|name` as associated data: moved to another row, an envelope does not open.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.utils.translation import gettext as _

from tenants.keys import KEY_BYTES, Keyring

NONCE_BYTES = 12
FINGERPRINT_CHARS = 10


class SecretInvalid(Exception):
    """A secret cannot be opened: it was changed or moved, or its key is gone. `code` is for lists and hints."""

    code = "secret_invalid"


class NoKeys(Exception):
    """There is no key to write secrets with."""


@dataclass(frozen=True, slots=True)
class Envelope:
    kid: str
    wrapped_key: bytes
    ciphertext: bytes


def binding(*, tenant_id: int, secret_id: int, name: str) -> bytes:
    """The associated data of both parts."""
    return f"v1|{tenant_id}|{secret_id}|{name}".encode()


def seal(value: str, keyring: Keyring, bound_to: bytes) -> Envelope:
    """Raises NoKeys."""
    kid = _writing(keyring)
    data_key = AESGCM.generate_key(bit_length=KEY_BYTES * 8)
    return Envelope(kid, _encrypt(keyring.keys[kid], data_key, bound_to), _encrypt(data_key, value.encode(), bound_to))


def open_envelope(envelope: Envelope, keyring: Keyring, bound_to: bytes) -> str:
    """Raises SecretInvalid."""
    return _decrypt(_data_key(envelope, keyring, bound_to), envelope.ciphertext, bound_to).decode()


def rewrap(envelope: Envelope, keyring: Keyring, bound_to: bytes) -> Envelope:
    """The same value under the writing key; the ciphertext is not touched. Raises NoKeys, SecretInvalid."""
    kid = _writing(keyring)
    data_key = _data_key(envelope, keyring, bound_to)
    return replace(envelope, kid=kid, wrapped_key=_encrypt(keyring.keys[kid], data_key, bound_to))


def fingerprint(value: str, keyring: Keyring, *, tenant_id: int) -> str:
    """The beginning of a keyed hash: people tell values apart by it, nobody finds the value from it. Raises NoKeys."""
    key = hmac.digest(keyring.keys[_writing(keyring)], b"fingerprint", hashlib.sha256)
    return hmac.new(key, f"{tenant_id}|{value}".encode(), hashlib.sha256).hexdigest()[:FINGERPRINT_CHARS]


def _writing(keyring: Keyring) -> str:
    if keyring.writing is None:
        raise NoKeys(_("Secrets cannot be kept: the operator has set no APP_KEKS."))
    return keyring.writing


def _data_key(envelope: Envelope, keyring: Keyring, bound_to: bytes) -> bytes:
    key = keyring.keys.get(envelope.kid)
    if key is None:
        raise SecretInvalid(_("The key %(key)s of this secret is not among APP_KEKS.") % {"key": envelope.kid})
    return _decrypt(key, envelope.wrapped_key, bound_to)


def _encrypt(key: bytes, data: bytes, bound_to: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, bound_to)


def _decrypt(key: bytes, blob: bytes, bound_to: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(blob[:NONCE_BYTES], blob[NONCE_BYTES:], bound_to)
    except (InvalidTag, ValueError) as error:
        raise SecretInvalid(_("This secret cannot be opened; set it again.")) from error
