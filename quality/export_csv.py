"""Feedback for people with a spreadsheet (RFC 4180, UTF-8 with a byte order mark, which Excel needs to know it).

A spreadsheet runs what begins like a formula, whoever wrote it. So a cell that does gets an apostrophe in front:
`= + - @`, their full-width and small forms, TAB, CR, LF and NUL, also after blanks, which some programs skip. A plain
number stays one, a minus in front or not.
"""

import csv
import io
import re
import string
from collections.abc import Iterable, Sequence

_SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"  # = + - @, full-width, small, minus sign
_FORMULA = re.compile(rf"[\t\r\n\x00]|\s*[{re.escape(_SIGNS)}]")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
_HARMLESS = frozenset(string.ascii_letters + string.digits + '"{[(')  # most cells begin with one of these
BYTE_ORDER_MARK = "\ufeff"


def cell(value: str | None) -> str:
    """A value as a cell that no spreadsheet runs."""
    if not value:
        return ""
    if value[0] not in _HARMLESS and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = f"'{value}"
    return value.replace("\x00", "\ufffd") if "\x00" in value else value  # readers of CSV stop at it


def sheet_row(values: Sequence[str | None]) -> str:
    """One line of cells, with its end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([cell(value) for value in values])
    return line.getvalue()


def sheet_head(names: Iterable[str]) -> str:
    """The first line: names of columns."""
    return BYTE_ORDER_MARK + sheet_row(list(names))
