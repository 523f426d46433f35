"""What is wrong with a JSON text, where, and in which field. Slow, exact, and the same on every Python."""

import math
import re

MAX_BYTES = 5 * 1024 * 1024
MAX_DEPTH = 100
ITEM_DEPTH = MAX_DEPTH + 1  # the record around its free fields is a container too
MAX_DIGITS = 308
MAX_KEY_CHARS = 1024
MAX_PATH_CHARS = 200

_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORD = re.compile(r"-?[A-Za-z]++")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class JsonError(ValueError):
    """Text that is not strict JSON. `offset` counts bytes, `line` and `column` count from 1, `path` names the field."""

    def __init__(
        self, code: str, message: str, *, offset: int = 0, line: int = 1, column: int = 1, path: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.line = line
        self.column = column
        self.path = path


class _Fault(Exception):
    def __init__(self, code: str, message: str, position: int):
        self.code, self.message, self.position = code, message, position


def fault_of_number(text: str) -> str:
    """Why a JSON number cannot be taken; empty if it can."""
    mantissa = text.lower().partition("e")[0].lstrip("-")
    if max(map(len, mantissa.split("."))) > MAX_DIGITS:
        return f"has more than {MAX_DIGITS} digits"
    value = float(text)
    if math.isinf(value):
        return "is too large for a double"
    if value == 0.0 and mantissa.strip("0."):
        return "is too small for a double"
    return ""


def explain(raw: bytes, *, depth: int = ITEM_DEPTH, repeated_keys: bool = False) -> JsonError:
    """The first fault of a text that the fast check refused."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode()
        return _error("invalid_utf8", _encoding_hint(raw, error.start), good, len(good), "")
    walk = _Walk(text, depth, repeated_keys)
    try:
        walk.document()
    except _Fault as fault:
        return _error(fault.code, fault.message, text, fault.position, walk.path())
    return _error("malformed_json", "Not a JSON text.", text, 0, "")


def _error(code: str, message: str, text: str, position: int, path: str) -> JsonError:
    before = text[:position]
    line_start = before.rfind("\n") + 1
    return JsonError(
        code,
        message,
        offset=len(before.encode()),
        line=before.count("\n") + 1,
        column=position - line_start + 1,
        path=path,
    )


def _encoding_hint(raw: bytes, position: int) -> str:
    byte = raw[position]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or raw[:64].count(0) > 8:
        return "This is UTF-16 or UTF-32. Save it as UTF-8 (without byte order mark)."
    return (
        f"Byte 0x{byte:02X} at {position:,} is not UTF-8. If the text is Latin-1 or Windows-1252, convert it: "
        "iconv -f WINDOWS-1252 -t UTF-8."
    )


def _shown(key: str) -> str:
    """A key as a message can carry it: one line, ASCII, at most some 40 characters."""
    return ascii(key if len(key) <= 40 else key[:39] + "…").replace("'", '"')


def _unescape(body: str) -> str:
    def replace(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]]

    text = _ESCAPE.sub(replace, body)
    # Two escapes that form a pair are one character, as for every JSON parser.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if "\\u" in body else text


class _Walk:
    """Reads the text from left to right without recursion. `places` holds the key or index reached in each open
    container, `keys` the keys seen in it (None: an array)."""

    def __init__(self, text: str, depth: int, repeated_keys: bool):
        self.text = text
        self.depth = depth
        self.repeated_keys = repeated_keys
        self.position = 0
        self.places: list[str | int] = []
        self.keys: list[set[str] | None] = []

    def path(self) -> str:
        path = ""
        for place in self.places:
            if isinstance(place, int):
                path += f"[{place}]"
            elif _PLAIN_KEY.fullmatch(place):
                path += f".{place}" if path else place
            elif place:
                path += f"[{_shown(place)}]"
        return path if len(path) <= MAX_PATH_CHARS else path[: MAX_PATH_CHARS - 1] + "…"

    def document(self) -> None:
        if self.text.startswith("\ufeff"):
            raise _Fault("malformed_json", "A byte order mark. Save the text as UTF-8 without it.", 0)
        self.value()
        while self.places:
            self.next()
        if self.peek():
            raise self.unexpected("nothing more: one JSON value is complete")

    def peek(self) -> str:
        """Skip white space; the character there, or "" at the end."""
        self.position = _SPACE.match(self.text, self.position).end()  # type: ignore[union-attr]
        return self.text[self.position : self.position + 1]

    def unexpected(self, wanted: str) -> _Fault:
        character = self.text[self.position : self.position + 1]
        found = f"Unexpected {character!a}" if character else "The text ends too early"
        return _Fault("malformed_json", f"{found}; expected {wanted}.", self.position)

    def value(self) -> None:
        """Read a scalar, or open containers down to the first scalar or empty container in them."""
        while (character := self.peek()) in ("{", "["):
            if len(self.places) == self.depth:
                raise _Fault("too_deep", f"More than {MAX_DEPTH} objects or arrays inside each other.", self.position)
            self.position += 1
            is_object = character == "{"
            self.places.append("" if is_object else 0)
            self.keys.append(set() if is_object else None)
            if self.peek() == ("}" if is_object else "]"):
                self.close()
                return
            if is_object:
                self.key()
        if character == '"':
            self.string()
        else:
            self.number_or_word(character)

    def close(self) -> None:
        self.position += 1
        self.places.pop()
        self.keys.pop()

    def next(self) -> None:
        """After a value: close its container, or go on to the container's next value."""
        is_object = self.keys[-1] is not None
        closing = "}" if is_object else "]"
        character = self.peek()
        if character == closing:
            self.close()
            return
        if character != ",":
            raise self.unexpected(f"',' or {closing!r}")
        comma = self.position
        self.position += 1
        if self.peek() == closing:
            raise _Fault("malformed_json", "A comma with nothing after it.", comma)
        if is_object:
            self.key()
        else:
            self.places[-1] = int(self.places[-1]) + 1
        self.value()

    def key(self) -> None:
        if self.peek() != '"':
            raise self.unexpected("a key in double quotes")
        begin = self.position
        key = _unescape(self.string())
        self.places[-1] = key
        seen = self.keys[-1]
        assert seen is not None
        if len(key) > MAX_KEY_CHARS:
            raise _Fault("key_too_long", f"A key of {len(key):,} characters; the limit is {MAX_KEY_CHARS:,}.", begin)
        if key in seen and not self.repeated_keys:
            raise _Fault("duplicate_key", f"The key {_shown(key)} occurs twice in one object.", begin)
        seen.add(key)
        if self.peek() != ":":
            raise self.unexpected("':'")
        self.position += 1

    def string(self) -> str:
        """Read a string; what stands between its quotes."""
        begin = self.position
        end = _STRING.match(self.text, begin).end()  # type: ignore[union-attr]
        character = self.text[end : end + 1]
        if character == '"':
            self.position = end + 1
            return self.text[begin + 1 : end]
        if not character:
            raise _Fault("malformed_json", "A string that is not closed.", begin)
        if character == "\\":
            raise _Fault("malformed_json", f"{self.text[end : end + 2]!a} is no escape of JSON.", end)
        raise _Fault("malformed_json", f"A raw control character in a string; write \\u{ord(character):04x}.", end)

    def number_or_word(self, character: str) -> None:
        if match := _NUMBER.match(self.text, self.position):
            if fault := fault_of_number(match[0]):
                shown = match[0] if len(match[0]) <= 40 else match[0][:40] + "…"
                raise _Fault("number_out_of_range", f"The number {shown} {fault}.", self.position)
        elif match := _WORD.match(self.text, self.position):
            if match[0] in ("NaN", "Infinity", "-Infinity"):
                raise _Fault("non_finite_number", f"{match[0]} is no JSON number. Send null.", self.position)
            if match[0] not in ("true", "false", "null"):
                raise _Fault("malformed_json", f"Unknown word {match[0][:40]!r}; expected a value.", self.position)
        else:
            raise self.unexpected("a value")
        self.position = match.end()
