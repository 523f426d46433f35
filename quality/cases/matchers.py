"""What one value has to be: a matcher for each row of the language's table, entered in `MATCHERS`.

A bare text, number, true, false, null or array means `equal`; an object is always a set of matchers, all of which must
hold. Answers have three values: None means that it could not be decided (no model to ask, no `now`), and stays None
under `not`. Only `ignore`, `absent`, `not`, `all` and `one_of` can match what is not there.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

from engine import schema as json_schema
from engine.errors import ToolError
from engine.text import well_formed
from quality.cases import moments, texts
from quality.cases.pairing import one_to_one
from quality.cases.reading import Reader, compiled, hint, kind
from quality.cases.values import ABSENT, EXACT, equal, is_number, jsonable, key_of, plain, pointer_to
from quality.cases.wording import MATCHER, NUMBER, POSITIVE, TEXT, TRUE, WHOLE, array_of, object_of, range_of

MAX_TEXT = 100_000  # characters that a pattern is matched against
MAX_NUMERAL = 400  # characters of a number inside text

_NUMERAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")

# How the engine says that a schema could not be applied; what it says of values begins otherwise.
_NOT_CHECKED = ("a pattern of the schema takes too long", "cannot be checked against")

type Schema = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is asked to judge: does `got` mean what `rubric` (and `of`, the text to compare with) says?"""

    rubric: str
    of: Any
    got: Any
    model: str | None = None
    votes: int = 3


type Ask = Callable[[Question], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What matchers may know beside the value. `ask` puts a question to a model; None: nobody is asked."""

    now: datetime | None = None
    null_is_absent: bool = False
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a value does not match: `path` is a JSON pointer within it."""

    code: str
    expected: Any
    got: Any
    path: str = ""

    def below(self, step: str | int) -> "Miss":
        return Miss(self.code, self.expected, self.got, pointer_to(step) + self.path)

    def under(self, pointer: str) -> "Miss":
        return Miss(self.code, self.expected, self.got, pointer + self.path)


@dataclass(frozen=True, slots=True)
class Match:
    """True, False or (undecided) None; the misses say why it is not True."""

    ok: bool | None
    misses: tuple[Miss, ...] = ()

    def below(self, step: str | int) -> "Match":
        return self if self.ok else Match(self.ok, tuple(miss.below(step) for miss in self.misses))


YES: Final = Match(True)


def every(matches: Iterable[Match]) -> Match:
    """All of them: one False decides, else one None leaves it open."""
    failed: list[Miss] = []
    undecided: list[Miss] = []
    for match in matches:
        if match.ok is False:
            failed += match.misses
        elif match.ok is None:
            undecided += match.misses
    if failed:
        return Match(False, tuple(failed))
    return Match(None, tuple(undecided)) if undecided else YES


@dataclass(frozen=True)
class Matcher:
    """Base of all. `source` is the matcher as it was written, for reports."""

    source: Any

    name: ClassVar[str]
    schema: ClassVar[Schema]
    asks: ClassVar[bool] = False  # needs a model
    about_presence: ClassVar[bool] = False  # looks at whether there is a value, not at what it is

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        raise NotImplementedError

    def match(self, value: Any, scope: Scope) -> Match:
        """Whether a value, or ABSENT, is what is wanted."""
        if value is ABSENT:
            return Match(False, (Miss("missing_argument", self.source, ABSENT),))
        if (ok := self.test(value, scope)) is True:
            return YES
        code = "wrong_argument" if ok is False else self.undecided(scope)
        return Match(ok, (Miss(code, self.source, value),))

    def test(self, value: Any, scope: Scope) -> bool | None:
        raise NotImplementedError

    def undecided(self, scope: Scope) -> str:
        return "check_timeout"

    @property
    def parts(self) -> tuple["Matcher", ...]:
        """The matchers inside this one."""
        return ()

    def any_part(self, wanted: Callable[["Matcher"], bool]) -> bool:
        return wanted(self) or any(part.any_part(wanted) for part in self.parts)


@dataclass(frozen=True)
class Equal(Matcher):
    of: Any
    strict_type: bool = False

    name = "equal"
    schema = {"description": "JSON equality: 5 and 5.0 are equal, true is never 1, the order of names does not matter."}

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        return cls({"equal": value} if isinstance(value, dict) else value, value)

    def match(self, value: Any, scope: Scope) -> Match:
        if value is ABSENT and self.of is None and scope.null_is_absent:
            return YES
        return super().match(value, scope)

    def test(self, value: Any, scope: Scope) -> bool:
        return equal(value, self.of, strict_type=self.strict_type, null_is_absent=scope.null_is_absent)


@dataclass(frozen=True)
class Near(Matcher):
    of: Any
    abs: Any
    rel: Any
    from_string: bool

    name = "number"
    schema = object_of(
        {"of": NUMBER, "abs": POSITIVE, "rel": POSITIVE, "from_string": {"type": "boolean"}},
        required=["of"],
        description="A number within abs, or within rel times of; from_string also takes a number written as text.",
    )

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        members = reader.members(value, path, cls.schema["properties"], '"number"')
        if isinstance(value, dict) and "of" not in members:
            reader.fault(path, "missing_key", '"number" needs "of", the number to compare with')
        return cls(
            {"number": value},
            reader.number(members.get("of", 0), f"{path}/of", '"of"'),
            reader.number(members.get("abs", 0), f"{path}/abs", '"abs"', least=0),
            reader.number(members.get("rel", 0), f"{path}/rel", '"rel"', least=0),
            reader.flag(members.get("from_string", False), f"{path}/from_string", '"from_string"'),
        )

    def test(self, value: Any, scope: Scope) -> bool:
        if isinstance(value, str) and self.from_string:
            value = numeral(value)
        if not is_number(value):
            return False
        of = Decimal(self.of)
        distance = abs(EXACT.subtract(Decimal(value), of))
        return distance <= self.abs or distance <= EXACT.multiply(Decimal(self.rel), abs(of))


def numeral(text: str) -> Decimal | None:
    """The number that a text is in full, if it is one."""
    text = text.strip()
    return Decimal(text) if len(text) <= MAX_NUMERAL and _NUMERAL.fullmatch(text) else None


@dataclass(frozen=True)
class _Bound(Matcher):
    of: Any

    schema = NUMBER

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        return cls({cls.name: value}, reader.number(value, path, f'"{cls.name}"'))

    def test(self, value: Any, scope: Scope) -> bool:
        return is_number(value) and self.holds(value)

    def holds(self, value: Any) -> bool:
        raise NotImplementedError


class Greater(_Bound):
    name = "gt"

    def holds(self, value: Any) -> bool:
        return bool(value > self.of)


class AtLeast(_Bound):
    name = "gte"

    def holds(self, value: Any) -> bool:
        return bool(value >= self.of)


class Less(_Bound):
    name = "lt"

    def holds(self, value: Any) -> bool:
        return bool(value < self.of)


class AtMost(_Bound):
    name = "lte"

    def holds(self, value: Any) -> bool:
        return bool(value <= self.of)


@dataclass(frozen=True)
class _Several(Matcher):
    of: tuple[Matcher, ...]

    least: ClassVar[int] = 0
    schema = array_of(MATCHER)

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        items = reader.items(value, path, f'"{cls.name}"', least=cls.least)
        return cls(
            {cls.name: value}, tuple(matcher(item, reader, f"{path}/{place}") for place, item in enumerate(items))
        )

    @property
    def parts(self) -> tuple[Matcher, ...]:
        return self.of


class OneOf(_Several):
    name = "one_of"
    least = 1
    schema = array_of(MATCHER, least=1, description="Any of these values or matchers.")

    def match(self, value: Any, scope: Scope) -> Match:
        undecided: list[Miss] = []
        for part in self.of:
            match = part.match(value, scope)
            if match.ok:
                return YES
            if match.ok is None:
                undecided += match.misses
        if undecided:
            return Match(None, tuple(undecided))
        return Match(False, (Miss(_code_for(value), self.source, value),))


class All(_Several):
    name = "all"
    least = 1
    schema = array_of(MATCHER, least=1, description="All of these matchers.")

    def match(self, value: Any, scope: Scope) -> Match:
        return every(part.match(value, scope) for part in self.of)


def _code_for(value: Any) -> str:
    return "missing_argument" if value is ABSENT else "wrong_argument"


class _Unordered(_Several):
    @cached_property
    def keys(self) -> tuple[str, ...] | None:
        """Where all elements are plain values: these as text, for a comparison that does not take the square."""
        if all(isinstance(part, Equal) and not part.strict_type for part in self.of):
            return tuple(key_of(part.of) for part in self.of if isinstance(part, Equal))
        return None

    def pair(self, elements: list[Any], scope: Scope, wanted: tuple[Matcher, ...]) -> bool | None:
        return one_to_one(len(wanted), len(elements), lambda left, right: wanted[left].match(elements[right], scope).ok)


class Set(_Unordered):
    name = "set"
    schema = array_of(MATCHER, description="An array, compared without order; repeated elements count once.")

    def test(self, value: Any, scope: Scope) -> bool | None:
        if not isinstance(value, list):
            return False
        distinct = {key_of(item): item for item in value}
        if self.keys is not None and not scope.null_is_absent:
            return distinct.keys() == set(self.keys)
        wanted = {key_of(_written(part)): part for part in self.of}
        return self.pair(list(distinct.values()), scope, tuple(wanted.values()))


class Multiset(_Unordered):
    name = "multiset"
    schema = array_of(MATCHER, description="An array, compared without order; repeated elements count.")

    def test(self, value: Any, scope: Scope) -> bool | None:
        if not isinstance(value, list) or len(value) != len(self.of):
            return False
        if self.keys is not None and not scope.null_is_absent:
            return Counter(map(key_of, value)) == Counter(self.keys)
        return self.pair(value, scope, self.of)


def _written(part: Matcher) -> Any:
    return part.source if not (isinstance(part, Equal) and part.strict_type) else {"strict": jsonable(part.of)}


@dataclass(frozen=True)
class _Inner(Matcher):
    of: Matcher

    schema = MATCHER

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        return cls({cls.name: value}, matcher(value, reader, path))

    @property
    def parts(self) -> tuple[Matcher, ...]:
        return (self.of,)


class Each(_Inner):
    name = "each"

    def match(self, value: Any, scope: Scope) -> Match:
        if not isinstance(value, list):
            return Match(False, (Miss(_code_for(value), self.source, value),))
        return every(self.of.match(item, scope).below(place) for place, item in enumerate(value))


class Has(_Inner):
    name = "has"

    def match(self, value: Any, scope: Scope) -> Match:
        undecided: tuple[Miss, ...] = ()
        for item in value if isinstance(value, list) else ():
            match = self.of.match(item, scope)
            if match.ok:
                return YES
            if match.ok is None:
                undecided += match.misses
        return Match(None, undecided) if undecided else Match(False, (Miss(_code_for(value), self.source, value),))


class Not(_Inner):
    name = "not"

    def match(self, value: Any, scope: Scope) -> Match:
        match = self.of.match(value, scope)
        if match.ok is None:
            return match
        return Match(False, (Miss("wrong_argument", self.source, value),)) if match.ok else YES


@dataclass(frozen=True)
class Length(Matcher):
    least: int
    most: int

    name = "length"
    schema = {
        "anyOf": [WHOLE, range_of(WHOLE)],
        "description": "How many elements an array, or characters a text, has.",
    }

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        if is_number(value):
            size = reader.whole(value, path, '"length"')
            return cls({"length": value}, size, size)
        least, most = read_range(value, reader, path, '"length"')
        return cls({"length": value}, least or 0, 1_000_000_000 if most is None else most)

    def test(self, value: Any, scope: Scope) -> bool:
        return isinstance(value, list | str) and self.least <= len(value) <= self.most


def read_range(value: Any, reader: Reader, path: str, what: str) -> tuple[int | None, int | None]:
    """`{min, max}`, of which one has to be given."""
    members = reader.members(value, path, ("min", "max"), what)
    if isinstance(value, dict) and not members:
        reader.fault(path, "missing_key", f'{what} needs "min" or "max"')
    least = reader.whole(members["min"], f"{path}/min", '"min"') if "min" in members else None
    most = reader.whole(members["max"], f"{path}/max", '"max"') if "max" in members else None
    if least is not None and most is not None and least > most:
        reader.fault(path, "out_of_range", f'{what} has a "min" above its "max"')
    return least, most


FOLDING: Final[dict[str, tuple[str, ...]]] = {
    "case": ("fold",),
    "space": ("collapse", "ignore"),
    "unicode": ("nfc", "nfkc"),
    "punct": ("ignore",),
}


_FORMS: Final[dict[str, Literal["NFC", "NFKC"]]] = {"nfc": "NFC", "nfkc": "NFKC"}


@dataclass(frozen=True)
class Text(Matcher):
    of: str
    folding: texts.Folding

    name = "text"
    schema = object_of(
        {"of": {"type": "string"}, "trim": {"type": "boolean"}}
        | {name: {"enum": list(known)} for name, known in FOLDING.items()},
        required=["of"],
        description="Text, with only those differences folded that are asked for.",
    )

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        members = reader.members(value, path, cls.schema["properties"], '"text"')
        of = members.get("of")
        if not isinstance(of, str):
            reader.fault(
                f"{path}/of" if "of" in members else path, "missing_key", '"text" needs "of", the text to compare with'
            )
            of = ""
        chosen = {
            name: reader.choice(members[name], f"{path}/{name}", f'value of "{name}"', known)
            for name, known in FOLDING.items()
            if name in members
        }
        folding = texts.Folding(
            case="case" in chosen,
            space=chosen.get("space", ""),
            trim=reader.flag(members.get("trim", False), f"{path}/trim", '"trim"'),
            unicode=_FORMS.get(chosen.get("unicode", ""), ""),
            punct="punct" in chosen,
        )
        return cls({"text": value}, folding.fold(of), folding)

    def test(self, value: Any, scope: Scope) -> bool:
        return isinstance(value, str) and self.folding.fold(value) == self.of


@dataclass(frozen=True)
class Regex(Matcher):
    pattern: str
    max_length: int

    name = "regex"
    schema = {
        "anyOf": [TEXT, object_of({"pattern": TEXT, "max_length": WHOLE}, required=["pattern"])],
        "description": "Text that this regular expression (RE2 syntax) matches in full.",
    }

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        if not isinstance(value, dict):
            return cls({"regex": value}, reader.pattern(value, path, '"regex"'), MAX_TEXT)
        members = reader.members(value, path, ("pattern", "max_length"), '"regex"')
        if "pattern" not in members:
            reader.fault(path, "missing_key", '"regex" needs "pattern"')
        pattern = reader.pattern(members["pattern"], f"{path}/pattern", '"pattern"') if "pattern" in members else ""
        most = reader.whole(members.get("max_length", MAX_TEXT), f"{path}/max_length", '"max_length"', most=MAX_TEXT)
        return cls({"regex": value}, pattern, most)

    def test(self, value: Any, scope: Scope) -> bool | None:
        if not isinstance(value, str):
            return False
        if len(value) > self.max_length:
            return None if self.max_length == MAX_TEXT else False  # a bound that the case sets is part of what it asks
        return compiled(self.pattern).fullmatch(well_formed(value)) is not None


@dataclass(frozen=True)
class Date(Matcher):
    of: moments.Moment | None
    tolerance: timedelta

    name = "date"
    schema = {
        "anyOf": [TEXT, object_of({"of": TEXT, "tolerance": TEXT}, required=["of"])],
        "description": f'{moments.FORMS[0].upper()}{moments.FORMS[1:]}, within a tolerance such as "90s" or "1d".',
    }

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        if isinstance(value, str):
            return cls({"date": value}, cls._moment(value, reader, path), timedelta())
        members = reader.members(value, path, ("of", "tolerance"), '"date"')
        if isinstance(value, dict) and "of" not in members:
            reader.fault(path, "missing_key", f'"date" needs "of": {moments.FORMS}')
        tolerance = moments.span(members["tolerance"]) if isinstance(members.get("tolerance"), str) else None
        if "tolerance" in members and tolerance is None:
            reader.fault(f"{path}/tolerance", "bad_duration", 'a tolerance is written like "90s", "2h" or "1d"')
        of = cls._moment(members["of"], reader, f"{path}/of") if "of" in members else None
        return cls({"date": value}, of, tolerance or timedelta())

    @staticmethod
    def _moment(value: Any, reader: Reader, path: str) -> moments.Moment | None:
        found = moments.moment(value) if isinstance(value, str) else None
        if found is None:
            reader.fault(path, "bad_date", f"a date is {moments.FORMS}")
        return found

    def test(self, value: Any, scope: Scope) -> bool | None:
        got = moments.read(value) if isinstance(value, str) else None
        if got is None:
            return False
        expected = self.of.at(scope.now) if self.of else None
        return None if expected is None else moments.near(got, expected, self.tolerance, scope.now)

    def undecided(self, scope: Scope) -> str:
        return "no_now"


@dataclass(frozen=True)
class _Normalised(Matcher):
    of: str | None

    schema = TEXT
    what: ClassVar[str]

    @staticmethod
    def normal(text: str) -> str | None:
        raise NotImplementedError

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        of = cls.normal(well_formed(value)) if isinstance(value, str) else None
        if of is None:
            reader.fault(path, "wrong_type", f'"{cls.name}" must be {cls.what}')
        return cls({cls.name: value}, of)

    def test(self, value: Any, scope: Scope) -> bool:
        return isinstance(value, str) and self.of is not None and self.normal(well_formed(value)) == self.of


class Phone(_Normalised):
    name, what = "phone", "a phone number"
    normal = staticmethod(texts.phone)


class Email(_Normalised):
    name, what = "email", "an e-mail address"
    normal = staticmethod(texts.email)


class Url(_Normalised):
    name, what = "url", "an absolute URL"
    normal = staticmethod(texts.url)


@dataclass(frozen=True)
class JsonSchema(Matcher):
    of: json_schema.ArgumentSchema | None

    name = "schema"
    schema = {"type": ["object", "boolean"], "description": "A JSON Schema that the value must be valid against."}

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        if not isinstance(value, dict | bool):
            reader.fault(path, "wrong_type", f'"schema" must be a JSON Schema, not {kind(value)}')
            return cls({"schema": value}, None)
        try:
            return cls({"schema": value}, json_schema.compiled(_around(plain(value))))
        except ToolError as error:
            reader.fault(path, "bad_schema", f"this JSON Schema cannot be used: {error}")
            return cls({"schema": value}, None)

    def match(self, value: Any, scope: Scope) -> Match:
        if value is ABSENT or self.of is None:
            return super().match(value, scope)
        fault = self.of.fault({"value": plain(value)})
        if fault is None:
            return YES
        ok = None if fault.reason.startswith(_NOT_CHECKED) else False
        code = "wrong_argument" if ok is False else "check_timeout"
        return Match(ok, (Miss(code, self.source, value),))

    def test(self, value: Any, scope: Scope) -> bool:
        return False


def _around(schema: Any) -> Schema:
    """The engine compiles schemas of objects; an id of its own lets the inner one refer to itself by `#`."""
    if isinstance(schema, bool):
        return {"type": "object", "properties": {"value": schema}}
    dialect = {"$schema": schema["$schema"]} if isinstance(schema.get("$schema"), str) else {}
    return {**dialect, "type": "object", "properties": {"value": {"$id": "urn:quality-lab:value", **schema}}}


@dataclass(frozen=True)
class Object(Matcher):
    fields: Mapping[str, Matcher]
    extra: bool

    name = "object"
    schema = object_of(
        {"fields": {"type": "object", "additionalProperties": MATCHER}, "extra": {"enum": ["allow", "forbid"]}},
        required=["fields"],
        description="An object, field by field; other fields are forbidden unless extra is allow.",
    )

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        members = reader.members(value, path, cls.schema["properties"], '"object"')
        fields = members.get("fields")
        if not isinstance(fields, dict):
            place = f"{path}/fields" if "fields" in members else path
            reader.fault(place, "missing_key", '"object" needs "fields", an object of names and matchers')
            fields = {}
        extra = reader.choice(members.get("extra", "forbid"), f"{path}/extra", 'value of "extra"', ("allow", "forbid"))
        read = {name: matcher(item, reader, f"{path}/fields{pointer_to(name)}") for name, item in fields.items()}
        return cls({"object": value}, read, extra == "allow")

    def match(self, value: Any, scope: Scope) -> Match:
        if not isinstance(value, dict):
            return Match(False, (Miss(_code_for(value), self.source, value),))
        given = {name: item for name, item in value.items() if item is not None} if scope.null_is_absent else value
        matches = [part.match(given.get(name, ABSENT), scope).below(name) for name, part in self.fields.items()]
        if not self.extra:
            for name in given:
                if name not in self.fields:
                    matches.append(Match(False, (Miss("extra_argument", ABSENT, given[name], pointer_to(name)),)))  # noqa: PERF401
        return every(matches)

    @property
    def parts(self) -> tuple[Matcher, ...]:
        return tuple(self.fields.values())


@dataclass(frozen=True)
class Judged(Matcher):
    rubric: str
    of: Any
    model: str | None
    votes: int

    name = "judge"
    asks = True
    schema = object_of(
        {"rubric": TEXT, "of": {}, "model": TEXT, "votes": {"type": "integer", "minimum": 1, "maximum": 15}},
        required=["rubric"],
        description="Meaning, compared by a model: what counts as right, and the value to compare with.",
    )

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        members = reader.members(value, path, cls.schema["properties"], '"judge"')
        if isinstance(value, dict) and "rubric" not in members:
            reader.fault(path, "missing_key", '"judge" needs "rubric", which says what counts as right')
        return cls(
            {"judge": value},
            reader.text(members["rubric"], f"{path}/rubric", '"rubric"') if "rubric" in members else "",
            members.get("of"),
            reader.text(members["model"], f"{path}/model", '"model"') if "model" in members else None,
            reader.whole(members.get("votes", 3), f"{path}/votes", '"votes"', least=1, most=15),
        )

    def test(self, value: Any, scope: Scope) -> bool | None:
        if scope.ask is None:
            return None
        return scope.ask(
            Question(rubric=self.rubric, of=plain(self.of), got=plain(value), model=self.model, votes=self.votes)
        )

    def undecided(self, scope: Scope) -> str:
        return "not_judged"


@dataclass(frozen=True)
class _Presence(Matcher):
    schema = TRUE
    about_presence = True

    @classmethod
    def read(cls, value: Any, reader: Reader, path: str) -> Self:
        reader.only_true(value, path, cls.name)
        return cls({cls.name: True})


class Ignore(_Presence):
    name = "ignore"
    about_presence = False

    def match(self, value: Any, scope: Scope) -> Match:
        return YES


class Present(_Presence):
    name = "present"

    def match(self, value: Any, scope: Scope) -> Match:
        return Match(False, (Miss("missing_argument", self.source, ABSENT),)) if value is ABSENT else YES


class Absent(_Presence):
    name = "absent"

    def match(self, value: Any, scope: Scope) -> Match:
        return YES if value is ABSENT else Match(False, (Miss("extra_argument", self.source, value),))


MATCHERS: Final[dict[str, type[Matcher]]] = {
    each.name: each
    for each in (
        Equal, Near, Greater, AtLeast, Less, AtMost, OneOf, Set, Multiset, Each, Has, Length, Text, Regex, Date,
        Phone, Email, Url, JsonSchema, Object, Judged, Ignore, Present, Absent, Not, All,
    )
}  # fmt: skip


def matcher(value: Any, reader: Reader, path: str) -> Matcher:
    """Read a matcher: a bare value, or an object of one or more matchers."""
    if not isinstance(value, dict):
        return Equal.read(value, reader, path)
    found = []
    for name, item in value.items():
        place = f"{path}{pointer_to(name)}"
        if name in MATCHERS:
            found.append(MATCHERS[name].read(item, reader, place))
        elif name != "strict_type":
            near = hint(name, MATCHERS) or "."
            reader.fault(place, "unknown_matcher", f'"{name[:80]}" is no matcher{near} {_FOR_OBJECTS}')
    if "strict_type" in value:
        strict = reader.flag(value["strict_type"], f"{path}/strict_type", '"strict_type"')
        if "equal" not in value:
            reader.fault(f"{path}/strict_type", "unknown_key", '"strict_type" stands beside "equal" only')
        found = [_strict(part, value) if strict and isinstance(part, Equal) else part for part in found]
    if not value:
        reader.fault(path, "empty_matcher", f"an empty object is no matcher. {_FOR_OBJECTS}")
    if len(found) == 1:
        return found[0]
    return All(value, tuple(found))


_FOR_OBJECTS = 'To compare with an object write {"equal": {…}}.'


def _strict(part: Equal, value: dict[str, Any]) -> Equal:
    return Equal({"equal": part.of, "strict_type": True} if len(value) == 2 else part.source, part.of, strict_type=True)


def matcher_schema() -> Schema:
    """JSON Schema of a matcher, to stand at `#/$defs/matcher`."""
    properties: Schema = {name: each.schema for name, each in MATCHERS.items()}
    properties["strict_type"] = {"type": "boolean", "description": "With equal: 5 and 5.0 are different."}
    return {
        "description": 'A bare value means {"equal": value}; an object holds matchers, all of which must hold.',
        "anyOf": [
            {"type": ["string", "number", "boolean", "null", "array"]},
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "properties": properties,
                "dependentRequired": {"strict_type": ["equal"]},
            },
        ],
    }
