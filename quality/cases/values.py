"""JSON values with exact numbers: 5 and 5.0 are equal, 0.1 is one tenth, integers have all their digits."""

import json
import math
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from engine.strict_json import MAX_DEPTH, JsonError, read_json
from engine.text import well_formed

MAX_SHOWN = 2_000  # characters of JSON text that a reason quotes of a value

# Wide enough for the whole range of doubles, so that sums and differences of what JSON may hold are exact.
EXACT: Final = Context(prec=2_000)


class Absence(Enum):
    """Not there, which is not null."""

    ABSENT = "absent"


ABSENT: Final = Absence.ABSENT


def read_exact(text: str) -> Any:
    """The value of a JSON text, fractions as `Decimal`. Raises `JsonError` by the engine's rules."""
    return read_json(text, exact=True)


def exact(value: Any) -> Any:
    """A value with its floats as the decimals that they were written as. Raises `JsonError` for what is not JSON."""
    return _exact(value, 0)


def _exact(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise JsonError("too_deep", f"more than {MAX_DEPTH} nested containers")
    if isinstance(value, int) and value.bit_length() > 1024:
        raise JsonError("number_out_of_range", "an integer of more than 308 digits")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise JsonError("non_finite_number", f"{value} is not JSON")
        return Decimal(repr(value)) if isinstance(value, float) else value
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise JsonError("malformed_json", "the names of an object must be text")
        return {key: _exact(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item, depth + 1) for item in value]
    raise JsonError("malformed_json", f"a {type(value).__name__} is not JSON")


def is_number(value: Any) -> bool:
    """A JSON number; true and false are none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def equal(left: Any, right: Any, *, strict_type: bool = False, null_is_absent: bool = False) -> bool:
    """JSON equality: the order of names does not matter, the order of items does, true is never 1."""
    if is_number(left) and is_number(right):
        return bool(left == right) and not (strict_type and isinstance(left, int) != isinstance(right, int))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        if null_is_absent:
            left, right = without_nulls(left), without_nulls(right)
        return left.keys() == right.keys() and all(
            equal(item, right[key], strict_type=strict_type, null_is_absent=null_is_absent)
            for key, item in left.items()
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(
            equal(item, other, strict_type=strict_type, null_is_absent=null_is_absent)
            for item, other in zip(left, right, strict=True)
        )
    return bool(left == right)


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


def key_of(value: Any) -> str:
    """Text that is the same for equal values, and for no others."""
    return json.dumps(_keyed(value), sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _keyed(value: Any) -> Any:
    if is_number(value):
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return {"": number_text(number)}  # in an object, so that no text looks like it
    if isinstance(value, dict):
        return {f".{key}": _keyed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_keyed(item) for item in value]
    return value


def number_text(number: Decimal | int) -> str:
    """One spelling for one number: 5, 5.0 and 50e-1 are `5`."""
    if isinstance(number, int):
        return str(number)
    if number == number.to_integral_value(context=EXACT):
        return str(int(number))
    sign, digits, exponent = number.normalize(EXACT).as_tuple()
    assert isinstance(exponent, int)
    return f"{'-' if sign else ''}{''.join(map(str, digits))}e{exponent}"


def plain(value: Any) -> Any:
    """The value as other libraries read JSON, fractions as floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def jsonable(value: Any) -> Any:
    """A value for a report: fractions as floats where that loses no digit, else as text; lone surrogates, which no
    UTF-8 can carry, as U+FFFD; long values cut."""
    if value is None or value is ABSENT:
        return None
    if isinstance(value, str) and len(value) < MAX_SHOWN // 6:  # short enough, however it is escaped
        return well_formed(value)
    value = _reported(value)
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text):,} characters)"


def _reported(value: Any) -> Any:
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, Mapping):
        return {well_formed(str(key)): _reported(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_reported(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return well_formed(str(value))


def pointer_fault(pointer: str) -> str | None:
    """Why this is no JSON pointer (RFC 6901), or None."""
    if pointer and not pointer.startswith("/"):
        return 'a JSON pointer begins with "/"'
    if re.search(r"~(?![01])", pointer):
        return 'in a JSON pointer "~" is written "~0", and "/" inside a name "~1"'
    return None


@lru_cache(maxsize=4096)  # of expectations and schemas: the same ones for each sample
def steps_of(pointer: str) -> tuple[str, ...]:
    """The names of a pointer, unescaped."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def pointer_to(*steps: str | int) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def resolve(value: Any, pointer: str) -> Any:
    """What stands at a pointer, or ABSENT."""
    for step in steps_of(pointer):
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value
