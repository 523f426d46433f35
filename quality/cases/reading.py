"""Reading what people wrote by hand: every fault with its place, and what was probably meant."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import re2

from engine.text import well_formed
from quality.cases.values import is_number, pointer_fault, pointer_to

MAX_PATTERN = 1_000  # characters


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with an expectation: a JSON pointer to the place, a code, and the reason in words."""

    path: str
    code: str
    message: str


def hint(word: str, known: Iterable[str]) -> str:
    """`, did you mean "tool"?` where a known word is near; lists the known ones where they are few."""
    words = sorted(known)
    near = get_close_matches(word.casefold(), words, n=1, cutoff=0.6) or get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; it can be {', '.join(words)}" if 0 < len(words) <= 12 else ""


def kind(value: Any) -> str:
    """What a value is, in words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names: dict[type, str] = {str: "text", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


def pattern_fault(pattern: str) -> str | None:
    """Why this regular expression cannot be used, or None."""
    if len(pattern) > MAX_PATTERN:
        return f"is longer than {MAX_PATTERN:,} characters"
    try:
        compiled(pattern)
    except (re2.error, UnicodeError) as error:
        return f"is no regular expression that can be matched in linear time: {_words(error)}"
    return None


def _words(error: Exception) -> str:
    text = error.args[0] if error.args else str(error)
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """RE2 never backtracks: no pattern and no text can make it hang."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


@dataclass(slots=True)
class Reader:
    """Collects faults while an expectation is read. Each method gives a value that can be worked with, or a default."""

    faults: list[Fault] = field(default_factory=list)

    def fault(self, path: str, code: str, message: str) -> None:
        self.faults.append(Fault(well_formed(path), code, well_formed(message)))  # both quote what was written

    def members(self, value: Any, path: str, known: Collection[str], what: str) -> dict[str, Any]:
        """The members of an object that knows these names only."""
        if not isinstance(value, dict):
            self.fault(path, "wrong_type", f"{what} must be an object, not {kind(value)}")
            return {}
        for name in value:
            if name not in known:
                place = f"{path}{pointer_to(name)}"
                self.fault(place, "unknown_key", f'{what} has no "{name[:80]}"{hint(name, known)}')
        return {name: item for name, item in value.items() if name in known}

    def items(self, value: Any, path: str, what: str, *, least: int = 0, most: int = 200) -> list[Any]:
        if not isinstance(value, list):
            self.fault(path, "wrong_type", f"{what} must be an array, not {kind(value)}")
            return []
        if not least <= len(value) <= most:
            self.fault(path, "wrong_length", f"{what} must have {least} to {most} items, not {len(value)}")
        return value[:most]

    def text(self, value: Any, path: str, what: str, *, most: int = 10_000) -> str:
        if not isinstance(value, str):
            self.fault(path, "wrong_type", f"{what} must be text, not {kind(value)}")
            return ""
        if not value:
            self.fault(path, "empty_text", f"{what} must not be empty")
        if len(value) > most:
            self.fault(path, "too_long", f"{what} must have at most {most:,} characters")
        return value

    def choice(self, value: Any, path: str, what: str, known: Collection[str], code: str = "unknown_value") -> str:
        if isinstance(value, str) and value in known:
            return value
        told = f'"{value[:80]}"' if isinstance(value, str) else kind(value)
        near = hint(value if isinstance(value, str) else "", known)
        self.fault(path, code, f"{told} is no {what}{near}")
        return ""

    def flag(self, value: Any, path: str, what: str) -> bool:
        if not isinstance(value, bool):
            self.fault(path, "wrong_type", f"{what} must be true or false, not {kind(value)}")
        return value is True

    def only_true(self, value: Any, path: str, what: str) -> None:
        if value is not True:
            self.fault(path, "wrong_value", f'"{what}" takes true and nothing else')

    def number(self, value: Any, path: str, what: str, *, least: int | None = None) -> Any:
        if not is_number(value):
            self.fault(path, "wrong_type", f"{what} must be a number, not {kind(value)}")
            return 0
        if least is not None and value < least:
            self.fault(path, "out_of_range", f"{what} must be at least {least}")
        return value

    def whole(self, value: Any, path: str, what: str, *, least: int = 0, most: int = 1_000_000) -> int:
        if not is_number(value) or value != int(value):
            self.fault(path, "wrong_type", f"{what} must be a whole number, not {kind(value)}")
            return least
        if not least <= value <= most:
            self.fault(path, "out_of_range", f"{what} must be from {least:,} to {most:,}")
            return least
        return int(value)

    def pointer(self, value: Any, path: str, what: str) -> str:
        if not isinstance(value, str):
            self.fault(path, "wrong_type", f"{what} must be a JSON pointer as text, not {kind(value)}")
            return ""
        if reason := pointer_fault(value):
            self.fault(path, "bad_pointer", f'"{value[:80]}" cannot be used: {reason}')
        return value

    def pattern(self, value: Any, path: str, what: str) -> str:
        pattern = self.text(value, path, what, most=MAX_PATTERN)
        if pattern and (reason := pattern_fault(pattern)):
            self.fault(path, "bad_regex", f'"{pattern[:80]}" {reason}')
            return ""
        return pattern
