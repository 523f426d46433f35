"""Makes visible what hides in text: bidirectional controls, zero-width and tag characters, control and ANSI codes.

One rule for pages, command line and logs. What a writing system needs (joiners inside Arabic or Indic words, in emoji)
stays as it is; everything else that a reader cannot see is told.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\xad\u061c\u070f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\ufff9-\ufffb"  # format characters
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0"  # letters and marks without a shape
    "\ufe00-\ufe0e\U000e0100-\U000e01ef"  # variation selectors, which can carry hidden bytes
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f"  # musical format characters, tags
    "\ud800-\udfff\ufffe\uffff]+"  # what is no character at all
)
_SHORT = {
    "\x1b": "ESC",
    "\x85": "NEL",
    "\xad": "SHY",
    "\u061c": "ALM",
    "\u200b": "ZWSP",
    "\u200c": "ZWNJ",
    "\u200d": "ZWJ",
    "\u200e": "LRM",
    "\u200f": "RLM",
    "\u2028": "LSEP",
    "\u2029": "PSEP",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\ufeff": "BOM",
}
_JOINERS = "\u200c\u200d"


class Segment(NamedTuple):
    """A stretch of text. `mark` describes it where it stands for something that cannot be seen; else it is empty."""

    text: str
    mark: str


def segments(text: str) -> Iterator[Segment]:
    """The text in order, hidden characters replaced by short names. A run of one kind is told with its count."""
    start = 0
    for match in _HIDDEN.finditer(text):
        if _belongs(text, match):
            continue
        if match.start() > start:
            yield Segment(text[start : match.start()], "")
        yield from _marks(match[0])
        start = match.end()
    if start < len(text):
        yield Segment(text[start:], "")


def visible(text: str) -> str:
    """The same for plain text: `pay⟨ZWSP⟩pal`."""
    return "".join(f"⟨{shown}⟩" if mark else shown for shown, mark in segments(text))


def _belongs(text: str, match: re.Match[str]) -> bool:
    """A joiner inside a word of a script that needs it or inside an emoji, and the newline of DOS, hide nothing."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if match[0] == "\r":
        return after == "\n"
    if match[0] not in _JOINERS or not before or not after:
        return False
    return all(_joins(character) for character in (before, after))


def _joins(character: str) -> bool:
    return (
        "\u0600" <= character <= "\u0dff"
        or "\u2190" <= character <= "\u2bff"
        or character == "\ufe0f"
        or "\U0001f000" <= character <= "\U0001faff"
    )


def _marks(run: str) -> Iterator[Segment]:
    position = 0
    while position < len(run):
        kind = _kind(run[position])
        end = position + 1
        while end < len(run) and _kind(run[end]) == kind:
            end += 1
        count = end - position
        if count > 3:
            yield Segment(f"{count} × {_name(run[position])}", f"{count} {kind}s, the first U+{ord(run[position]):04X}")
        else:
            for character in run[position:end]:
                yield Segment(_name(character), _describe(character))
        position = end


def _kind(character: str) -> str:
    if "\U000e0000" <= character <= "\U000e007f":
        return "tag character"
    if "\ufe00" <= character <= "\ufe0e" or "\U000e0100" <= character <= "\U000e01ef":
        return "variation selector"
    return _describe(character)


def _name(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if character == "\x7f":
        return "␡"
    kind = _kind(character)
    return {"tag character": "TAG", "variation selector": "VS"}.get(kind, f"U+{code:04X}")


def _describe(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return f"U+{code:04X} lone surrogate"
    return f"U+{code:04X} {unicodedata.name(character, 'control character').lower()}"
