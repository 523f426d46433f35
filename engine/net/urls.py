"""An absolute URL taken apart with no room for a second reading."""

import re
from dataclasses import dataclass
from urllib.parse import quote

from engine.net.codes import Code, Refused
from engine.net.names import canonical_host

DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 3986 characters that stay as they are in a path or query; all else is percent-encoded as UTF-8.
LITERAL = "/?:@!$&'()*+,;=-._~%"

_SPLIT = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?//(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_PORT = re.compile(r"[0-9]{1,5}")
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Url:
    """Where a request goes: canonical host, the port dialled, and the request target as it goes on the wire."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def split_url(text: str) -> tuple[str, str, int, str]:
    """Scheme, canonical host, port and the rest (path and query, untouched). Raises `Refused`."""
    if has_controls(text):
        raise Refused(Code.INVALID_URL, "the URL holds a control character or a line break")
    if "\\" in text:
        raise Refused(Code.INVALID_URL, "the URL holds a backslash")
    if "#" in text:
        raise Refused(Code.INVALID_URL, "the URL has a fragment")
    parts = _SPLIT.fullmatch(text)
    if parts is None:
        raise Refused(Code.INVALID_URL, "the URL must begin with http:// or https://")
    scheme = (parts["scheme"] or "").lower()
    if scheme not in DEFAULT_PORTS:
        raise Refused(Code.SCHEME_NOT_ALLOWED, "the URL must begin with http:// or https://")
    host, port = split_authority(parts["authority"], scheme)
    return scheme, host, port, parts["rest"]


def split_authority(authority: str, scheme: str) -> tuple[str, int]:
    """Canonical host and port."""
    for character, name in (("@", "a user name"), ("%", "a percent sign"), (" ", "a blank"), ("{", "a placeholder")):
        if character in authority:
            raise Refused(Code.INVALID_URL, f"the host part of the URL holds {name}")
    host, colon, port = authority, "", ""
    if not authority.endswith("]"):
        host, colon, port = authority.rpartition(":") if ":" in authority else (authority, "", "")
    if ":" in host and not host.startswith("["):
        raise Refused(Code.INVALID_URL, "an IPv6 address stands in brackets")
    if colon and not (_PORT.fullmatch(port) and 0 < int(port) < 65_536):
        raise Refused(Code.PORT_NOT_ALLOWED, "the port must be a number from 1 to 65535")
    return canonical_host(host), int(port) if colon else DEFAULT_PORTS[scheme]


def parse_url(text: str) -> Url:
    """A finished URL (no placeholders). Raises `Refused`."""
    scheme, host, port, rest = split_url(text)
    return Url(scheme, host, port, literal_target(rest))


def literal_target(rest: str) -> str:
    """Path and query as they go on the wire: other characters percent-encoded, no dot segments, whole escapes."""
    target = encode_literal(rest if rest.startswith("/") else "/" + rest)
    for segment in target.partition("?")[0].split("/"):
        if is_dot_segment(segment):
            raise Refused(Code.INVALID_URL, "the path holds a `.` or `..` segment")
    return target


def encode_literal(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise Refused(Code.INVALID_URL, "a percent sign must be followed by two hexadecimal digits")
    try:
        return quote(text, safe=LITERAL)
    except UnicodeEncodeError as exc:
        raise Refused(Code.INVALID_URL, "the URL is not valid Unicode") from exc


def is_dot_segment(segment: str) -> bool:
    return any(text in (".", "..") for text in decodings(segment))


def decodings(text: str) -> list[str]:
    """The text, and what it decodes to in up to five passes: servers behind servers decode more than once."""
    found = [text]
    for _ in range(5):
        decoded = re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), found[-1])
        if decoded == found[-1]:
            break
        found.append(decoded)
    return found


def has_controls(text: str) -> bool:
    """C0, DEL, C1, and the separators that some parsers take for a line break."""
    return any(character < " " or "\x7f" <= character <= "\x9f" or character in "\u2028\u2029" for character in text)
