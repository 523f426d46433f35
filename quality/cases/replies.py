"""What the final reply has to say: a check for each row of the language's table, entered in `CHECKS`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, Self

from engine.text import well_formed
from quality.cases import texts
from quality.cases.languages import KNOWN, language_of
from quality.cases.matchers import MAX_NUMERAL, MAX_TEXT, Near, Scope, Text
from quality.cases.reading import Reader, compiled, hint
from quality.cases.values import ABSENT, is_number, pointer_to
from quality.cases.wording import NUMBER, POINTER, TEXT, WHOLE, object_of

type Schema = dict[str, Any]

# The values at a pointer of the results that were served to a step (by its number) or to a tool (by its name).
type Results = Callable[[int | None, str | None, str], list[Any]]

_BLANK = re.compile("[\u00a0\u202f ]")
_NUMBER = re.compile(r"(?:(?<![\w.,])[+\-\u2212])?[0-9]+(?:[.,'\u2019\u00a0\u202f ][0-9]+)*")


@dataclass(frozen=True)
class Check:
    """Base of all. `source` is the check as it was written."""

    source: Any

    name: ClassVar[str]
    schema: ClassVar[Schema]
    beside: ClassVar[Schema] = {}  # members that may stand beside it

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        raise NotImplementedError

    def holds(self, reply: str, results: Results) -> bool | None:
        """Whether the reply says so; None where that cannot be told."""
        raise NotImplementedError


@dataclass(frozen=True)
class Contains(Check):
    text: str
    fold: bool

    name = "contains"
    schema = TEXT
    beside = {"fold": {"type": "boolean"}}

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        fold = reader.flag(beside.get("fold", False), f"{path}/fold", '"fold"')
        text = reader.text(value, f"{path}/contains", '"contains"')
        return cls({"contains": value, **beside}, texts.folded(text) if fold else texts.straight(text), fold)

    def holds(self, reply: str, results: Results) -> bool:
        return self.text in (texts.folded(reply) if self.fold else texts.straight(reply))


@dataclass(frozen=True)
class Found(Check):
    pattern: str

    name = "regex"
    schema = {**TEXT, "description": "A regular expression (RE2 syntax) that is found anywhere in the reply."}

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        return cls({"regex": value}, texts.straight(reader.pattern(value, f"{path}/regex", '"regex"')))

    def holds(self, reply: str, results: Results) -> bool | None:
        if len(reply) > MAX_TEXT:
            return None
        return compiled(self.pattern).search(well_formed(texts.straight(reply))) is not None


@dataclass(frozen=True)
class Same(Check):
    text: Text

    name = "text"
    schema = Text.schema

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        if isinstance(value, dict) and isinstance(value.get("of"), str):
            value = {**value, "of": texts.straight(value["of"])}
        return cls({"text": value}, Text.read(value, reader, f"{path}/text"))

    def holds(self, reply: str, results: Results) -> bool:
        return self.text.test(texts.straight(reply), Scope())


@dataclass(frozen=True)
class Number(Check):
    near: Near

    name = "number"
    schema = {"anyOf": [NUMBER, {key: value for key, value in Near.schema.items() if key != "description"}]}

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        value = {"of": value} if is_number(value) else value
        return cls({"number": value}, Near.read(value, reader, f"{path}/number"))

    def holds(self, reply: str, results: Results) -> bool:
        return any(self.near.test(number, Scope()) for number in numbers_in(reply))


@dataclass(frozen=True)
class Language(Check):
    code: str

    name = "language"
    schema = {"enum": list(KNOWN)}

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        return cls({"language": value}, reader.choice(value, f"{path}/language", "language that can be told", KNOWN))

    def holds(self, reply: str, results: Results) -> bool | None:
        found = language_of(reply)
        return None if found is None else found == self.code


@dataclass(frozen=True)
class UsesResult(Check):
    step: int | None
    tool: str | None
    pointer: str

    name = "uses_result"
    schema = {
        **object_of({"result": WHOLE, "tool": TEXT, "path": POINTER}, required=["path"]),
        "oneOf": [{"required": ["result"]}, {"required": ["tool"]}],
        "description": "The value at this pointer of a served result (of a step by its number, or of a tool) appears.",
    }

    @classmethod
    def read(cls, value: Any, beside: dict[str, Any], reader: Reader, path: str) -> Self:
        place = f"{path}/uses_result"
        members = reader.members(value, place, ("result", "tool", "path"), '"uses_result"')
        if isinstance(value, dict) and ("result" in members) == ("tool" in members):
            reader.fault(place, "missing_key", '"uses_result" needs either "result" (the number of a step) or "tool"')
        if isinstance(value, dict) and "path" not in members:
            reader.fault(place, "missing_key", '"uses_result" needs "path", a JSON pointer into the result')
        return cls(
            {"uses_result": value},
            reader.whole(members["result"], f"{place}/result", '"result"') if "result" in members else None,
            reader.text(members["tool"], f"{place}/tool", '"tool"') if "tool" in members else None,
            reader.pointer(members.get("path", ""), f"{place}/path", '"path"'),
        )

    def holds(self, reply: str, results: Results) -> bool:
        return any(appears(value, reply) for value in results(self.step, self.tool, self.pointer))


CHECKS: Final[dict[str, type[Check]]] = {
    each.name: each for each in (Contains, Found, Same, Number, Language, UsesResult)
}


def appears(value: Any, reply: str) -> bool:
    """Does a text or a number from a result stand in the reply? Folded; a number in any usual spelling."""
    if value is ABSENT or value is None or isinstance(value, bool | dict | list):
        return False
    if is_number(value):
        return any(number == value for number in numbers_in(reply))
    wanted = texts.folded(value)
    if not wanted:
        return False
    left = r"(?<!\w)" if wanted[0].isalnum() else ""
    right = r"(?!\w)" if wanted[-1].isalnum() else ""
    return re.search(f"{left}{re.escape(wanted)}{right}", texts.folded(reply)) is not None


def numbers_in(reply: str) -> Iterator[Decimal]:
    """Every number that a text may mean: 1,299 is 1299 to some and 1.299 to others."""
    for token in _NUMBER.findall(reply[:MAX_TEXT]):
        pieces = _BLANK.split(token)
        if len(pieces) > 1 and _is_grouped(pieces):
            yield from _readings("".join(pieces))
        for piece in pieces:
            yield from _readings(piece)


def _readings(token: str) -> Iterator[Decimal]:
    sign = "-" if token[0] in "-\u2212" else ""
    parts = re.split(r"[^0-9]", token.lstrip("+-\u2212"))
    marks = re.findall(r"[^0-9]", token.lstrip("+-\u2212"))
    if len(token) > MAX_NUMERAL:
        return
    if len(set(marks)) <= 1 and _is_grouped(parts):
        yield Decimal(sign + "".join(parts))
    if marks and marks[-1] in ".," and marks[-1] not in marks[:-1] and _is_grouped(parts[:-1]):
        yield Decimal(f"{sign}{''.join(parts[:-1])}.{parts[-1]}")


def _is_grouped(parts: list[str]) -> bool:
    return all(len(part) == 3 for part in parts[1:])


def read_check(value: Any, reader: Reader, path: str) -> Check | None:
    """Read one check of a reply."""
    if not isinstance(value, dict):
        reader.fault(path, "wrong_type", 'a check of the reply is an object such as {"contains": "7731"}')
        return None
    named = [name for name in value if name in CHECKS]
    if len(named) != 1:
        unknown = next((name for name in value if name not in CHECKS), None)
        near = f'"{unknown[:80]}" is no check{hint(unknown, CHECKS)}' if unknown and not named else ""
        place = f"{path}{pointer_to(unknown)}" if near and unknown else path
        code = "unknown_check" if near else "wrong_length"
        reader.fault(place, code, near or f"a check of the reply has one of {', '.join(CHECKS)}")
        return None
    check = CHECKS[named[0]]
    members = reader.members(value, path, (check.name, *check.beside), f'"{check.name}"')
    beside = {name: item for name, item in members.items() if name != check.name}
    return check.read(members[check.name], beside, reader, path)


def check_schema() -> Schema:
    """JSON Schema of a check of the reply."""
    return {"anyOf": [object_of({name: each.schema, **each.beside}, required=[name]) for name, each in CHECKS.items()]}
