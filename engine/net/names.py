"""Host names in the one spelling that is judged, looked up, dialled, and checked against the certificate."""

import re
import unicodedata
from collections.abc import Iterable

import idna

from engine.net.addresses import Address, parse_address
from engine.net.codes import Code, Refused

INTERNAL_SUFFIXES = (
    "localhost",
    "local",
    "internal",
    "lan",
    "home",
    "corp",
    "intranet",
    "localdomain",
    "consul",
)

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_OTHER_DOTS = re.compile("[\u3002\uff0e\uff61]")


def canonical_host(raw: str) -> str:
    """A-labels, lower case, no root dot; IPv6 without brackets. Raises `Refused`.

    Numbers that only some resolvers take for an address (`127.1`, `0x7f000001`, full-width digits) are refused here,
    before anything asks a resolver.
    """
    if raw.startswith("[") and raw.endswith("]"):
        address = parse_address(raw[1:-1]) if ":" in raw else None
        if address is None:
            raise Refused(Code.INVALID_URL, "the host is no IPv6 address")
        return str(address)
    host = _ascii_host(raw).removesuffix(".")
    labels = host.split(".")
    if not host or len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused(Code.INVALID_URL, "the host is no valid name")
    if _NUMERIC.fullmatch(labels[-1]) and parse_address(host) is None:
        raise Refused(Code.HOST_NOT_ALLOWED, "numeric hosts must be written as four plain decimal numbers")
    return host


def _ascii_host(raw: str) -> str:
    if raw.isascii():
        return raw.lower()
    if _OTHER_DOTS.search(raw):
        raise Refused(Code.INVALID_URL, "the host has a dot that is not a full stop")
    try:
        return idna.encode(unicodedata.normalize("NFC", raw.lower())).decode("ascii")
    except (idna.IDNAError, UnicodeError) as exc:
        raise Refused(Code.INVALID_URL, "the host is no valid international name") from exc


def literal_address(host: str) -> Address | None:
    """The address that a canonical host spells itself, if it is none of the names."""
    return parse_address(host)


def is_internal(host: str) -> bool:
    """Names that only mean something inside a network: single labels, and suffixes kept for such use."""
    labels = host.split(".")
    return literal_address(host) is None and (len(labels) == 1 or labels[-1] in INTERNAL_SUFFIXES)


def parse_host_list(entries: Iterable[str]) -> tuple[str, ...]:
    """A tenant's host list in canonical form; `*.name` stands for whole labels before `name`. Raises `Refused`."""
    return tuple(
        "*." + canonical_host(entry[2:]) if entry.startswith("*.") else canonical_host(entry)
        for entry in (entry.strip() for entry in entries)
    )


def is_listed(host: str, entries: Iterable[str]) -> bool:
    return any(host.endswith(entry[1:]) if entry.startswith("*.") else host == entry for entry in entries)
