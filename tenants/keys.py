"""Key-encryption keys: `APP_KEKS="k2:base64,k1:base64"`. The first one writes, all of them read."""

import base64
import binascii
import re
from dataclasses import dataclass, field

KEY_BYTES = 32
MIN_DISTINCT = 8  # random keys have some 30 different bytes; `aaaa…` and counters of a few digits do not
_KID = re.compile(r"[A-Za-z0-9_.-]{1,32}")
# What stands in examples and tutorials. A key that everybody can read encrypts nothing.
_KNOWN = frozenset(
    (
        bytes(range(32)),
        b"0123456789abcdef0123456789abcdef",
        b"abcdefghijklmnopqrstuvwxyz012345",
        b"12345678901234567890123456789012",
        b"change-me-change-me-change-me-32",
        b"this-is-a-32-byte-secret-key!!!!",
        b"an example very very secret key.",
    )
)


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id, the writing one first. Empty where the operator configured none."""

    keys: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def writing(self) -> str | None:
        return next(iter(self.keys), None)


def parse_keks(text: str) -> Keyring:
    """The keyring of `text`; an empty text is an empty one. Raises ValueError with what is wrong, never with a key."""
    keys: dict[str, bytes] = {}
    for place, item in enumerate(filter(None, (part.strip() for part in text.split(","))), start=1):
        kid, colon, encoded = item.partition(":")
        if not colon or not _KID.fullmatch(kid):
            raise ValueError(f"key {place} needs the form id:base64, the id of 1 to 32 letters, digits, - _ .")
        if kid in keys:
            raise ValueError(f"the id {kid} stands twice")
        keys[kid] = _key(kid, encoded)
    return Keyring(keys)


def _key(kid: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded, altchars=b"-_" if set("-_") & set(encoded) else None, validate=True)
    except binascii.Error as error:
        raise ValueError(f"key {kid} is not base64") from error
    if len(key) != KEY_BYTES:
        raise ValueError(f"key {kid} has {len(key)} bytes and needs {KEY_BYTES}: openssl rand -base64 {KEY_BYTES}")
    if key in _KNOWN or len(set(key)) < MIN_DISTINCT:
        raise ValueError(f"key {kid} is an example that others know: openssl rand -base64 {KEY_BYTES} makes your own")
    return key
