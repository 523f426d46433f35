"""Reading JSON that others wrote, with limits of our own, so that the verdict is the same on every Python."""

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from engine.errors import EngineError

MAX_DEPTH = 100  # nested containers
MAX_DIGITS = 308  # of an integer, or of a number's fraction

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)


class JsonError(EngineError):
    """Text that is not JSON, or JSON beyond the limits.

    `code` is `malformed_json`, `non_finite_number`, `number_out_of_range`, `too_deep`, `duplicate_key` or
    `not_an_object`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_json(text: str, *, exact: bool = False) -> Any:
    """The value of a JSON text; raises `JsonError`. One byte order mark in front is no part of it. `exact`: fractions
    are the `Decimal` that was written, refused by the same rules."""
    text = text.removeprefix("\ufeff")
    _check_depth(text)
    try:
        return (_EXACT if exact else _DECODER).decode(text)
    except json.JSONDecodeError as exc:
        raise JsonError("malformed_json", f"{exc.msg} at character {exc.pos}") from exc


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as a model sent them; an empty text stands for no arguments. Raises `JsonError`."""
    if not text.strip():
        return {}
    value = read_json(text)
    if not isinstance(value, dict):
        raise JsonError("not_an_object", "arguments must be a JSON object")
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += (token[1] is not None) - (token[2] is not None)
        if depth > MAX_DEPTH:
            raise JsonError("too_deep", f"more than {MAX_DEPTH} nested containers at character {token.start()}")


def _refuse_constant(name: str) -> Any:
    raise JsonError("non_finite_number", f"{name} is not JSON")


def _read_float(text: str) -> float:
    mantissa = re.split("[eE]", text)[0]
    value = float(text)
    underflow = value == 0 and mantissa.strip("-0.") != ""
    if math.isinf(value) or underflow or len(mantissa.partition(".")[2]) > MAX_DIGITS:
        raise JsonError("number_out_of_range", f"{text[:40]} does not fit a double")
    return value


def _read_decimal(text: str) -> Decimal:
    _read_float(text)
    return Decimal(text)


def _read_int(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise JsonError("number_out_of_range", f"an integer of more than {MAX_DIGITS} digits")
    return int(text)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonError("duplicate_key", f"key {key[:100]!r} stands twice in one object")
            seen.add(key)
    return result


def _decoder(read_fraction: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=_refuse_constant, parse_float=read_fraction, parse_int=_read_int, object_pairs_hook=_read_object
    )


_DECODER, _EXACT = _decoder(_read_float), _decoder(_read_decimal)
