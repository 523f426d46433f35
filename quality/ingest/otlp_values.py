"""Values, ids and times as OTLP writes them, in JSON or out of protobuf, as plain Python values.

Attributes are `[{"key": …, "value": AnyValue}]`. Ids are hex in OTLP's JSON; some senders write base64, as protobuf's
JSON would. Depth and count are bounded: what is over a bound is refused, with the field's name.
"""

import base64
import binascii
import datetime as dt
import math
import re
from typing import Any

from quality.ingest import evidence
from quality.ingest.records import RecordError

MAX_DEPTH = 32
MAX_VALUES = 50_000  # of one list of attributes; a long chat in OpenInference's flat form has some thousands

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8

_HEX = re.compile(r"[0-9a-fA-F]+")
_DIGITS = re.compile(r"[+-]?[0-9]{1,20}")
_SECOND = 1_000_000_000  # nanoseconds


def attributes(pairs: Any, path: str) -> dict[str, Any]:
    """A list of key-value pairs as a dict; of a repeated key the last one wins. Raises RecordError."""
    return _Decoder().pairs(pairs, path, MAX_DEPTH)


def any_value(value: Any, path: str) -> Any:
    """One AnyValue: text, number, boolean, list, dict or None. Raises RecordError."""
    return _Decoder().value(value, path, MAX_DEPTH)


def as_any_value(value: Any) -> dict[str, Any]:
    """The AnyValue, in JSON form, that `any_value` reads as this."""
    match value:
        case list():
            return {"arrayValue": {"values": [as_any_value(each) for each in value]}}
        case dict():
            pairs = [{"key": key, "value": as_any_value(held)} for key, held in value.items()]
            return {"kvlistValue": {"values": pairs}}
        case int() if not isinstance(value, bool):
            return {"intValue": str(value)}
    kinds = {bool: "boolValue", float: "doubleValue", str: "stringValue"}
    return {} if value is None else {kinds[type(value)]: value}


class _Decoder:
    def __init__(self) -> None:
        self._left = MAX_VALUES

    def pairs(self, pairs: Any, path: str, depth: int) -> dict[str, Any]:
        if pairs is None:
            return {}
        if not isinstance(pairs, list):
            raise RecordError("wrong_type", path, "Expected an array of attributes.")
        decoded: dict[str, Any] = {}
        for position, pair in enumerate(pairs):
            if not isinstance(pair, dict) or not isinstance(pair.get("key"), str):
                raise RecordError("wrong_type", f"{path}[{position}]", "Expected an attribute: `key` and `value`.")
            decoded[pair["key"]] = self.value(pair.get("value"), f"{path}[{position}].value", depth)
        return decoded

    def value(self, value: Any, path: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise RecordError("too_long", path, f"More than {MAX_VALUES:,} values in the attributes of one span.")
        if depth == 0:
            raise RecordError("too_deep", path, f"Values are nested more than {MAX_DEPTH} deep.")
        if value is None or value == {}:
            return None
        if not isinstance(value, dict):
            raise RecordError("wrong_type", path, 'Expected a value such as {"stringValue": "…"}.')
        kind, content = next(iter(value.items()))
        where = f"{path}.{kind}"
        match _camel(kind):
            case "arrayValue":
                return [
                    self.value(element, f"{where}.values[{position}]", depth - 1)
                    for position, element in enumerate(_values(content, where))
                ]
            case "kvlistValue":
                return self.pairs(_values(content, where), f"{where}.values", depth - 1)
            case plain:
                return _plain(plain, content)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _plain(kind: str, content: Any) -> str | int | float | bool | None:
    """None also for a kind of value that is newer than this code."""
    if kind == "intValue":
        return whole(content)
    if kind == "doubleValue":
        return _double(content)
    known = kind in ("stringValue", "bytesValue", "boolValue")
    return content if known and isinstance(content, str | bool) else None


def _values(content: Any, path: str) -> list[Any]:
    values = content.get("values") if isinstance(content, dict) else content
    if values is None:
        return []
    if not isinstance(values, list):
        raise RecordError("wrong_type", f"{path}.values", "Expected an array.")
    return values


def _double(content: Any) -> float | str | None:
    """JSON has no words for what is not finite; OTLP writes those as text, and so they stay."""
    if isinstance(content, bool) or not isinstance(content, int | float):
        return content if isinstance(content, str) else None
    return float(content) if math.isfinite(content) else str(content)


def whole(value: Any) -> int | None:
    """A 64-bit integer that came as number or text; None if it is neither."""
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def identifier(value: Any, num_bytes: int) -> str | None:
    """An id in hex, lower case, from hex (with or without `0x`), base64 or bytes; None if it is none, or all zeros."""
    if isinstance(value, bytes):
        found = value.hex() if len(value) == num_bytes else None
    else:
        text = value.removeprefix("0x") if isinstance(value, str) else ""
        is_hex = len(text) == 2 * num_bytes and _HEX.fullmatch(text)
        found = text.lower() if is_hex else _hex_of_base64(text, num_bytes)
    return found if found is not None and found.strip("0") else None


def _hex_of_base64(text: str, num_bytes: int) -> str | None:
    if len(text) != 4 * -(-num_bytes // 3):
        return None
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded.hex() if len(decoded) == num_bytes else None


def required_identifier(value: Any, num_bytes: int, path: str) -> str:
    """The same; raises RecordError where there is none."""
    found = identifier(value, num_bytes)
    if found is None:
        raise RecordError("invalid_identifier", path, f"Expected {2 * num_bytes} hexadecimal digits, not all zero.")
    return found


def nanoseconds(value: Any) -> int | None:
    """A Unix time in nanoseconds as number or text; None for 0, which stands for no time, and beyond 63 bits."""
    moment = whole(value)
    return moment if moment is not None and 0 < moment < 1 << 63 else None


def nanoseconds_of_text(value: Any) -> int | None:
    """An ISO 8601 time, in UTC where it names no zone; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = dt.datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000 or None


def utc_from_nanoseconds(moment: int | None) -> str | None:
    """UTC text with milliseconds, cut; None if it is out of the calendar."""
    if moment is None:
        return None
    try:
        seconds = dt.datetime.fromtimestamp(moment // _SECOND, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return evidence.utc(seconds.replace(microsecond=moment % _SECOND // 1_000))
