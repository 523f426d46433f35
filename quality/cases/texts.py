"""Comparing text with only those differences folded that were asked for."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlsplit

_SPACE = re.compile(r"\s+")
_SIGNS = "+-"
_POINTS = ".,"
_OF_NUMBERS = "%‰"  # punctuation to Unicode, but 5 % is not 5
_QUOTES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'", "\u02bc": "'"}
    | {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"'}
)
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")
_ASCII = "".join(map(chr, range(33, 127)))
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """Which differences do not count. `space` is `collapse` or `ignore`."""

    case: bool = False
    space: str = ""
    trim: bool = False
    unicode: Literal["", "NFC", "NFKC"] = ""
    punct: bool = False

    def fold(self, text: str) -> str:
        if self.unicode:
            text = unicodedata.normalize(self.unicode, text)
        if self.case:
            text = text.casefold()
            if self.unicode:  # folding case can take a letter apart
                text = unicodedata.normalize(self.unicode, text)
        if self.punct:
            text = without_punctuation(text)
        if self.space:
            text = _SPACE.sub(" " if self.space == "collapse" else "", text)
        return text.strip() if self.trim else text


def without_punctuation(text: str) -> str:
    """Drops punctuation, but never a sign or a point that belongs to a number: "-5" is not "5", "1.5" is not "15"."""
    return "".join(
        char
        for place, char in enumerate(text)
        if not unicodedata.category(char).startswith("P") or _counts(text, place)
    )


def _counts(text: str, place: int) -> bool:
    char, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if char in _OF_NUMBERS:
        return True
    if not after.isdigit():
        point_follows = char in _SIGNS and after in _POINTS and after != "" and text[place + 2 : place + 3].isdigit()
        return point_follows and not before.isalnum()
    return before.isdigit() or (char in _SIGNS + _POINTS and not before.isalnum())


def straight(text: str) -> str:
    """With typographic apostrophes and quotation marks made plain: no verdict hangs on how a quote is curled."""
    return text.translate(_QUOTES)


def folded(text: str) -> str:
    """For looking up one text in another: quotes, case, blanks and compatibility forms do not count."""
    return Folding(case=True, space="collapse", unicode="NFKC", trim=True).fold(straight(text))


def phone(text: str) -> str | None:
    """A phone number as its digits, with a `+` in front where it is international; None for what is no number."""
    bare = re.sub(r"[\s().\-/\u00a0\u2010-\u2015]|^tel:", "", text.strip(), flags=re.IGNORECASE)
    bare = re.sub(r"^00", "+", unicodedata.normalize("NFKC", bare))
    return bare if re.fullmatch(r"\+?[0-9]{3,15}", bare) else None


def email(text: str) -> str | None:
    """An address in lower case, without `mailto:` or brackets; None for what is none."""
    bare = unicodedata.normalize("NFC", re.sub(r"^mailto:", "", text.strip().strip("<>"), flags=re.IGNORECASE))
    return bare.casefold() if re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", bare) else None


def url(text: str) -> str | None:
    """A URL with scheme and host in lower case, no default port and one way of percent-encoding; None for none."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode() if parts.hostname else ""
    except ValueError:
        return None
    if not parts.scheme or not host:
        return None
    scheme = parts.scheme.lower()
    shown_port = f":{port}" if port and port != _DEFAULT_PORTS.get(scheme) else ""
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    path = _ESCAPE.sub(_escape, quote(parts.path, safe=_ASCII, errors="replace"))
    query = f"?{_ESCAPE.sub(_escape, quote(parts.query, safe=_ASCII, errors='replace'))}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{scheme}://{user}{host}{shown_port}{path or '/'}{query}{fragment}"


def _escape(found: re.Match[str]) -> str:
    """An escape in capitals, or the character itself where no escape is needed."""
    char = chr(int(found[0][1:], 16))
    return char if char.isascii() and (char.isalnum() or char in "-._~") else found[0].upper()
