"""Cutting text where no reader sees a broken character."""

import unicodedata

TRUNCATED = "… [truncated]"
ZERO_WIDTH_JOINER = "\u200d"


def truncate(text: str, limit: int) -> str:
    """The first `limit` characters and a mark, or all of a text that fits."""
    if len(text) <= limit:
        return text
    return text[: boundary(text, limit)] + TRUNCATED


def well_formed(text: str) -> str:
    """The text as UTF-8 can carry it: surrogate pairs joined, lone halves shown as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def boundary(text: str, cut: int) -> int:
    """The last place at or before `cut` that is inside no surrogate pair, combining sequence or joined emoji."""
    while 0 < cut < len(text) and _joined(text[cut - 1], text[cut]):
        cut -= 1
    if 0 < cut < len(text) and _is_regional(text[cut]):
        cut -= _regionals_before(text, cut) % 2  # flags are pairs: an odd one before the cut lost its partner
    return cut


def _joined(left: str, right: str) -> bool:
    if ZERO_WIDTH_JOINER in (left, right):
        return True
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    return unicodedata.category(right) in ("Mn", "Me", "Mc") or "\U0001f3fb" <= right <= "\U0001f3ff"


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regionals_before(text: str, end: int) -> int:
    start = end
    while start > 0 and _is_regional(text[start - 1]):
        start -= 1
    return end - start
