"""Patterns of what is personal, ready to be switched on. RE2 finds them; a check leaves what only looks like one."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2
from django.utils.translation import gettext as _

from tenants.masking.rewriting import LONE

MAX_PATTERN = 500  # characters
MAX_PROGRAM_BYTES = 1 << 20


class PatternFault(ValueError):
    """A pattern that cannot be a rule; the text says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. `measure` says how many characters of what it finds are meant; 0: none."""

    compiled: Any
    measure: Callable[[str], int] = len

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it is found, in characters, from the left, without overlap. Nothing empty counts."""
        # RE2 reads UTF-8, which a lone surrogate has no place in. One character stands for one, so places stay.
        plain = LONE.sub("\ufffd", text)
        for match in self.compiled.finditer(plain):
            start, end = match.span()
            if start < end and (length := self.measure(plain[start:end])):
                yield start, start + length


@lru_cache(maxsize=1_000)
def compiled(expression: str) -> Any:
    """The expression in RE2's language; raises PatternFault."""
    if len(expression) > MAX_PATTERN:
        raise PatternFault(_("A pattern has at most %(limit)d characters.") % {"limit": MAX_PATTERN})
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        pattern = re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        raise PatternFault(_("This is no regular expression of RE2: %(reason)s") % {"reason": _told(error)}) from error
    if pattern.search("") is not None and pattern.search("").span() == (0, 0) and pattern.fullmatch("") is not None:
        raise PatternFault(_("This pattern fits the empty text. Say what has to be there."))
    return pattern


def _told(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode() if isinstance(reason, bytes) else str(reason)


def _card(text: str) -> int:
    """All, if it is a card's number by its check digit: numbers of the same length that are none stay in sight."""
    digits = [int(character) for character in text if character.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return 0
    doubled = [digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits[::-1])]
    return len(text) if sum(doubled) % 10 == 0 else 0


def _iban(text: str) -> int:
    """The longest beginning that ISO 13616 lets pass: a word may stand behind the number as if it were a part of it."""
    for length in range(len(text), 14, -1):
        plain = text[:length].replace(" ", "")
        if text[length - 1] != " " and 15 <= len(plain) <= 34 and _leaves_one(plain):
            return length
    return 0


def _leaves_one(plain: str) -> bool:
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def _phone(text: str) -> int:
    """All, if it has 7 to 15 digits (ITU E.164) and does not read as a date."""
    digits = sum(character.isdigit() for character in text)
    return len(text) if 7 <= digits <= 15 and not _DATE.match(text) else 0


_DATE = re.compile(r"(?:19|20)\d\d[-./]?[01]\d[-./]?[0-3]\d(?!\d{4})|[0-3]?\d[-./][01]?\d[-./](?:19|20)\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A pattern that comes along. Its name stands for it where a rule's expression is `preset:<name>`."""

    name: str
    expression: str
    measure: Callable[[str], int] = len

    @property
    def pattern(self) -> Pattern:
        return Pattern(compiled(self.expression), self.measure)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(name="email", expression=r"[\pL\pN._%+'-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)*\.\pL{2,}"),
        Preset(
            name="phone",
            # With a country's code or an area's in brackets, or in three groups; bare digits are numbers of all kinds.
            expression=r"(?:\+|\b00)\d[\d\s()./-]{5,20}\d|\(\d{2,5}\)[\s./-]?\d[\d\s./-]{4,14}\d"
            r"|\b0?\d{2,4}(?:[\s.-]\d{2,4}){2,4}\b",
            measure=_phone,
        ),
        Preset(name="card", expression=r"\b\d(?:[ -]?\d){12,18}\b", measure=_card),
        Preset(name="iban", expression=r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b", measure=_iban),
        Preset(
            name="ip-address",
            expression=r"\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b"
            r"|(?i)\b(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}\b|(?i)\b(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5})?",
        ),
    )
}


def pattern_of(expression: str) -> Pattern:
    """The pattern of a rule: a preset's, or its own; raises PatternFault."""
    if expression.startswith("preset:"):
        preset = PRESETS.get(expression.removeprefix("preset:"))
        if preset is None:
            raise PatternFault(_("There is no such preset. Known: %(names)s") % {"names": ", ".join(PRESETS)})
        return preset.pattern
    return Pattern(compiled(expression))
