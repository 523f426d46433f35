"""Cursors of lists: the values by which the last row of a page was sorted. Opaque outside."""

import base64
import binascii
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from quality.calls import BadCursor
from quality.ingest.jsontext import storable

_LIMIT = 2**63


def write(*values: Any) -> str:
    """The cursor of a row with these values to sort by: text, whole numbers and times."""
    plain = [value.isoformat() if isinstance(value, dt.date) else value for value in values]
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: str, *kinds: Callable[[Any], Any]) -> list[Any]:
    """The values in a cursor, each read by its kind; raises BadCursor."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        values = json.loads(raw)
        if not isinstance(values, list) or len(values) != len(kinds):
            raise ValueError
        return [kind(value) for kind, value in zip(kinds, values, strict=True)]
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise BadCursor(_("This cursor is not one of ours. Start again without it.")) from error


def number(value: Any) -> int:
    if type(value) is not int or not -_LIMIT <= value < _LIMIT:
        raise ValueError
    return value


def text(value: Any) -> str:
    if type(value) is not str or value != storable(value):
        raise ValueError
    return value


def day(value: Any) -> dt.date:
    return dt.date.fromisoformat(value)


def moment(value: Any) -> dt.datetime:
    found = dt.datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError
    return found
