"""URL and header templates: what a tenant writes once and arguments fill on each call.

`{name}` is the only form of placeholder: in path segments, query values and header values. One pass, never
`str.format` (it reaches into attributes), and no value is looked at again for placeholders.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engine.net.codes import Code, Refused
from engine.net.urls import Url, decodings, encode_literal, has_controls, is_dot_segment, literal_target, split_url

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]{0,63})\}")
_SECRET = re.compile(r"\{secret:([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_BRACES = re.compile(r"[{}]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")

RESERVED_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "upgrade", "expect", "trailer")
)
MAX_HEADER_VALUE = 8_192  # bytes; servers cut off at about this


@dataclass(frozen=True, slots=True)
class Hole:
    """A placeholder."""

    name: str


type Part = str | Hole


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """Scheme, host and port are literal; `path` and `query` hold the placeholders."""

    scheme: str
    host: str
    port: int
    path: tuple[Part, ...]
    query: tuple[Part, ...] | None

    @property
    def names(self) -> frozenset[str]:
        return _names(self.path) | _names(self.query or ())

    @property
    def origin(self) -> Url:
        """The URL without its path: what the guard can judge before any call."""
        return Url(self.scheme, self.host, self.port, "/")

    def fill(self, arguments: Mapping[str, Any]) -> Url:
        """The URL of one call. Raises `Refused`, naming the argument."""
        path = "".join(part if isinstance(part, str) else _path_value(part.name, arguments) for part in self.path)
        for segment in path.split("/"):
            if is_dot_segment(segment):
                raise Refused(Code.INVALID_ARGUMENT, "the values make a `.` or `..` segment of the path")
        target = path
        if self.query is not None:
            target += "?" + "".join(
                part if isinstance(part, str) else _query_value(part.name, arguments) for part in self.query
            )
        return Url(self.scheme, self.host, self.port, target)


def parse_url_template(text: str) -> UrlTemplate:
    """Raises `Refused` with what is wrong, in words for the person who wrote it."""
    scheme, host, port, rest = split_url(text)
    if "{secret:" in rest:
        raise Refused(Code.INVALID_URL, "secrets may stand in header values only, never in the URL")
    path, question, query = rest.partition("?")
    literal_target(_PLACEHOLDER.sub("x", path))
    for pair in query.split("&"):
        if _PLACEHOLDER.search(pair.partition("=")[0]):
            raise Refused(Code.INVALID_URL, "a placeholder in the query must be a value: ?name={name}")
    return UrlTemplate(
        scheme,
        host,
        port,
        _url_parts(path if path.startswith("/") else "/" + path),
        _url_parts(query) if question else None,
    )


def _url_parts(text: str) -> tuple[Part, ...]:
    parts = _split(text)
    if any(isinstance(part, str) and _BRACES.search(part) for part in parts):
        raise Refused(Code.INVALID_URL, "braces may only hold the bare name of an argument, like {city}")
    return tuple(encode_literal(part) if isinstance(part, str) else part for part in parts)


def _split(text: str) -> list[Part]:
    """Literals and placeholders in turn."""
    return [
        Hole(piece) if odd else piece for i, piece in enumerate(_PLACEHOLDER.split(text)) if (odd := i % 2) or piece
    ]


def _names(parts: tuple[Part, ...]) -> frozenset[str]:
    return frozenset(part.name for part in parts if isinstance(part, Hole))


def scalar_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A string as it is, numbers and booleans as JSON writes them. Raises `Refused` for anything else."""
    if name not in arguments:
        raise Refused(Code.INVALID_ARGUMENT, "is missing, and the request needs it", argument=name)
    value = arguments[name]
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        try:
            return json.dumps(value)
        except ValueError as exc:  # Python writes out integers of 4,300 digits at most
            raise Refused(Code.INVALID_ARGUMENT, "is too large a number", argument=name) from exc
    raise Refused(Code.INVALID_ARGUMENT, "must be a string, a number or a boolean", argument=name)


def _path_value(name: str, arguments: Mapping[str, Any]) -> str:
    text = scalar_text(name, arguments)
    if not text:
        raise Refused(Code.INVALID_ARGUMENT, "may not be empty, it is part of the path", argument=name)
    if has_controls(text) or any(_CONTROLS.search(reading) for reading in decodings(text)):
        raise Refused(Code.INVALID_ARGUMENT, "may not hold control characters", argument=name)
    for reading in decodings(text):
        if "/" in reading or "\\" in reading:
            raise Refused(Code.INVALID_ARGUMENT, "may not hold a slash or a backslash", argument=name)
        if reading in (".", ".."):
            raise Refused(Code.INVALID_ARGUMENT, "may not be `.` or `..`", argument=name)
    return _encode(name, text)


def _query_value(name: str, arguments: Mapping[str, Any]) -> str:
    return encode_query_value(name, scalar_text(name, arguments))


def encode_query_value(name: str, text: str) -> str:
    if "\0" in text:
        raise Refused(Code.INVALID_ARGUMENT, "may not hold a NUL character", argument=name)
    return _encode(name, text)


def _encode(name: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as exc:
        raise Refused(Code.INVALID_ARGUMENT, "is not valid Unicode", argument=name) from exc


@dataclass(frozen=True, slots=True)
class HeaderTemplate:
    """One header: a literal name and a value that may hold `{argument}` and `{secret:NAME}`."""

    name: str
    value: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset(_PLACEHOLDER.findall(self.value))

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(_SECRET.findall(self.value))

    def fill(self, arguments: Mapping[str, Any], secret: Callable[[str], str]) -> tuple[str, str]:
        """Name and value. The template is read once: braces in an argument or a secret stay braces."""
        pieces = []
        for i, piece in enumerate(_SECRET.split(self.value)):
            if i % 2:
                pieces.append(secret(piece))
            else:
                pieces += [
                    part if isinstance(part, str) else scalar_text(part.name, arguments) for part in _split(piece)
                ]
        return self.name, header_value(self.name, "".join(pieces))


def parse_header_template(name: str, value: Any) -> HeaderTemplate:
    """Raises `Refused`."""
    if not _TOKEN.fullmatch(name):
        raise Refused(Code.INVALID_HEADER, "a header name is made of letters, digits and -")
    if name.lower() in RESERVED_HEADERS or name.lower().startswith("proxy-"):
        raise Refused(Code.INVALID_HEADER, f"the header {name} is set by the client itself")
    if not isinstance(value, str):
        raise Refused(Code.INVALID_HEADER, "a header value is a string")
    rest = _PLACEHOLDER.sub("", _SECRET.sub("", value))
    if "{secret" in rest or re.search(r"\{[A-Za-z_]", rest):
        raise Refused(Code.INVALID_HEADER, "a placeholder is {argument} or {secret:NAME}, nothing else")
    header_value(name, rest)
    return HeaderTemplate(name, value)


def header_value(name: str, value: str) -> str:
    """A value fit to be sent: blanks at its ends dropped, no control characters; other characters go out as UTF-8."""
    value = value.strip(" \t")
    if has_controls(value):
        raise Refused(Code.INVALID_HEADER, f"the value of header {name} holds a control character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as exc:
        raise Refused(Code.INVALID_HEADER, f"the value of header {name} is not valid Unicode") from exc
    if size > MAX_HEADER_VALUE:
        raise Refused(Code.INVALID_HEADER, f"the value of header {name} is longer than {MAX_HEADER_VALUE} bytes")
    return value
