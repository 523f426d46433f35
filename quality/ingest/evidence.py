"""From what a source recorded to the fields of a record: the rules that all importers share."""

import datetime as dt
import json
import re
from typing import Any

from quality.ingest.jsontext import MAX_DEPTH, JsonError, Node, dump, escape_surrogates, parse, storable
from quality.ingest.records import MAX_NAME_CHARS, MAX_TOOLS, RecordError

_CANONICAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z")
_LAYOUT = re.compile(rb"[ \t\r]*\n[ \t\r\n]*")
TEXT_PARTS = ("text", "input_text", "output_text")


def args_from_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Arguments that came as text (JSON text and warnings). What is not JSON is kept as a JSON string."""
    if not text.strip():
        return "{}", ("args_empty",)
    node = _parsed(text)
    if node is None:
        return dump(text), ("args_not_json",)
    if isinstance(node.value, str):
        inner = _parsed(node.value)
        if inner is not None and isinstance(inner.value, dict):
            return inner.text, ("args_double_encoded",)
    return args_from_value(node)


def args_from_value(node: Node) -> tuple[str, tuple[str, ...]]:
    """Arguments that came as a JSON value."""
    return node.text, () if isinstance(node.value, dict) else ("args_not_object",)


def on_one_line(node: Node) -> Node:
    """A value as it would be spelled on one line: a file that is laid out for people indents the same value differently
    in each place. Strings hold no line breaks, so these are never in one."""
    return Node(_LAYOUT.sub(b"", node.raw), node.value) if b"\n" in node.raw else node


def result_from_text(text: str, raw: str | None = None) -> tuple[str, Any]:
    """A result that came as text: its JSON text, and its value. Only objects and arrays are read as JSON, so "17" and
    "null" stay text. `raw` is the JSON string that held the text, if there is one: its spelling is kept."""
    if text.lstrip(" \t\n\r")[:1] in ("{", "["):
        node = _parsed(text)
        if node is not None:
            return node.text, node.value
    return raw if raw is not None else dump(text), text


def _parsed(text: str) -> Node | None:
    """The root of a text that came inside another, None if it is not JSON. A model may repeat a key."""
    try:
        return parse(escape_surrogates(text).encode(), depth=MAX_DEPTH, repeated_keys=True)
    except JsonError:
        return None


def fault_in_result(value: Any) -> tuple[bool, str | None]:
    """is_error and error of a result that came without a flag: a non-empty top-level `error` is one."""
    fault = value.get("error") if isinstance(value, dict) else None
    return (True, fault_text(fault)) if fault else (False, None)


def fault_text(fault: Any) -> str:
    """An error for people: itself if it is text, its `message` if it has one, else its JSON."""
    if isinstance(fault, dict) and isinstance(fault.get("message"), str):
        fault = fault["message"]
    return storable(fault if isinstance(fault, str) else dump(fault))


def suspicions(value: Any) -> tuple[str, ...]:
    """A text that begins like an error is suspected, never judged."""
    suspected = isinstance(value, str) and value.startswith(("Error", "Traceback"))
    return ("error_text_suspected",) if suspected else ()


def joined_text(content: Any) -> str | None:
    """The text of content parts that are all text; None if some are not."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str)
        for part in content
    ):
        return "".join(part["text"] for part in content)
    return None


def toolset(node: Node | None, path: str) -> str | None:
    """The tools offered, as spelled; raises RecordError if that is no array of objects."""
    if node is None:
        return None
    if not isinstance(node.value, list) or not all(isinstance(tool, dict) for tool in node.value):
        raise RecordError("wrong_type", path, "Expected an array of objects.")
    if len(node.value) > MAX_TOOLS:
        raise RecordError("too_long", path, f"{len(node.value):,} tools; the limit is {MAX_TOOLS:,}.")
    return node.text


def is_plain_name(value: Any) -> bool:
    """Is it a name that can be taken as it is, as nearly all are?"""
    return type(value) is str and 0 < len(value) <= MAX_NAME_CHARS and value.isascii() and "\0" not in value


def name(value: Any, path: str, *, max_chars: int = MAX_NAME_CHARS) -> str | None:
    """A name or an id of somebody else's, made storable; None if there is none. Numbers are taken as text."""
    if value is None or value == "":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = json.dumps(value)
    if not isinstance(value, str):
        raise RecordError("wrong_type", path, "Expected a string.")
    if len(value) > max_chars:
        raise RecordError("too_long", path, f"{len(value):,} characters; the limit is {max_chars}.")
    return storable(value)


def utc(moment: dt.datetime) -> str:
    """UTC with milliseconds, cut and not rounded: 2026-05-12T08:30:00.000Z."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_from_seconds(value: Any) -> str | None:
    """A Unix time in seconds; None if it is no number or out of the calendar."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return utc(dt.datetime.fromtimestamp(value, dt.UTC))
    except (ValueError, OverflowError, OSError):
        return None


def utc_from_text(text: Any, path: str) -> str | None:
    """An ISO 8601 time with a zone; raises RecordError."""
    if text is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
        if _CANONICAL_TIME.fullmatch(text):
            return str(text)
        if moment.tzinfo is not None:
            return utc(moment)
    except (TypeError, ValueError, OverflowError):
        pass
    raise RecordError("invalid_time", path, "Expected ISO 8601 with a zone, such as 2026-05-12T08:30:00.000Z.")


def whole(value: Any, path: str, *, at_most: int) -> int:
    """A whole number from 0; raises RecordError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= at_most:
        raise RecordError("out_of_range", path, f"Expected a whole number from 0 to {at_most:,}.")
    return value
