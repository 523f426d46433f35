"""Taking secrets out of everything that is kept or shown, in each spelling in which they come back."""

import base64
import html
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MIN_LENGTH = 4  # shorter values would blot out ordinary words and numbers; no secret is that short
MIN_FRAGMENT = 8  # of base64: what of it is certain to show up when the value stands inside a longer text


class Redactor:
    """Replaces the values of secrets by `{secret:NAME}`.

    Known spellings: raw, UTF-8 read as Latin-1, JSON-escaped (once and twice), percent-encoded (partly or whole,
    either case), HTML-escaped, base64 in both alphabets and at any offset of a longer text. Values under 4 characters
    are left alone.
    """

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._secrets = dict(secrets or {})
        pairs = {
            spelling: f"{{secret:{name}}}" for name, value in self._secrets.items() for spelling in _spellings(value)
        }
        # Longest first: a short spelling inside a longer one must not leave the rest of it behind.
        self._pairs = sorted(pairs.items(), key=lambda pair: -len(pair[0]))

    def with_secret(self, name: str, value: str) -> "Redactor":
        """This redactor, and one value more."""
        if self._secrets.get(name) == value:
            return self
        return Redactor({**self._secrets, name: value})

    def text(self, text: str) -> str:
        for spelling, marker in self._pairs:
            text = text.replace(spelling, marker)
        return text

    def data(self, data: bytes) -> bytes:
        """The same for a body that is not text."""
        for spelling, marker in self._pairs:
            data = data.replace(spelling.encode("utf-8", "surrogatepass"), marker.encode())
        return data

    def value(self, value: Any) -> Any:
        """The same for a JSON value, its keys included; other objects are returned as they are."""
        if not self._pairs:
            return value
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.value(key): self.value(item) for key, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
        return value


def _spellings(value: str) -> set[str]:
    if len(value) < MIN_LENGTH:
        return set()
    raw = value.encode("utf-8", "surrogatepass")
    # Servers read header values as Latin-1, so a value beyond ASCII comes back with each byte as a character.
    found = {spelling for text in {value, raw.decode("latin-1")} for spelling in _as_text(text)}
    found |= _percent_encoded(raw)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        found |= _base64_fragments(raw, encode(raw).decode(), encode)
    return {spelling for spelling in found if len(spelling) >= MIN_LENGTH}


def _as_text(text: str) -> set[str]:
    found = {text, html.escape(text), html.escape(text, quote=False)}
    for escaped in (_json(text), _json(text, ascii_only=False), _json(text).replace("/", "\\/")):
        found |= {escaped, _json(escaped)}
    return found


def _json(text: str, *, ascii_only: bool = True) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _percent_encoded(raw: bytes) -> set[str]:
    whole = "".join(f"%{byte:02X}" for byte in raw)
    upper = {quote(raw, safe=safe) for safe in ("", "/", "~", "!*'()", "/?:@!$&'()*+,;=")} | {quote_plus(raw)}
    return {*upper, whole, whole.lower()} | {_lower_hex(text) for text in upper}


def _lower_hex(text: str) -> str:
    head, *rest = text.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _base64_fragments(raw: bytes, whole: str, encode: Any) -> set[str]:
    """The base64 text of `raw`, and the part of it that is fixed at each of the three offsets in a longer text."""
    found = {whole, whole.rstrip("=")}
    for offset in range(3):
        text = encode(bytes(offset) + raw).decode().rstrip("=")
        start = -(-offset * 8 // 6)
        end = (offset + len(raw)) * 8 // 6
        fragment = text[start:end]
        if len(fragment) >= MIN_FRAGMENT:
            found.add(fragment)
    return found
