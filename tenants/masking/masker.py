"""What a set of rules makes of a text. Pure: the same text, rules and salt give the same result.

What is masked is replaced by a mark, `{masked:NAME:1a2b3c4d}`: the rule's name and eight digits that are the same for
the same value of a tenant, so that a reader sees that two values are equal and not what they are.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tenants.masking.paths import START, Path, parse_path
from tenants.masking.patterns import Pattern, pattern_of
from tenants.masking.rewriting import Key, Plain, Scalar, Text, decoded, rewrite, spelled

MARK = re.compile(r"\{masked:([a-z0-9][a-z0-9-]{0,31}):([0-9a-f]{8})\}")
_BEGINNING = "{masked:"
MIN_CARRIED = 4  # characters; shorter values would blot out ordinary words
MAX_CARRIED = 200  # values looked for in the rest of a text
_QUOTED = re.compile('“.*”|".*"', re.DOTALL)  # greedy: what is quoted may hold such marks itself
MAX_NESTING = 4  # JSON inside strings inside JSON …
UNFINISHED = 80  # characters at the end of a text that was cut, in which half of something may stand

# Members of conversations, replies, cases and spans whose values are data of a tool, not our own structure.
DATA_MEMBERS = frozenset({"args", "arguments", "args_run", "input", "result", "output", "content", "response", "with"})

# What stands around a value in the language of expectations (quality.cases.matchers).
MATCHERS = frozenset({"equal", "strict_type", "one_of", "set", "multiset", "each", "has", "object", "fields", "not",
                      "all", "number", "gt", "gte", "lt", "lte", "text", "regex", "date", "phone", "email", "url",
                      "schema", "judge", "length", "ignore", "present", "absent", "extra"})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`kind` path, key or pattern; `expression` a JSON path, names of members with commas between, or a regular
    expression of RE2 (or `preset:<name>`). Raises PathFault, PatternFault when it is compiled."""

    name: str
    kind: str
    expression: str


@dataclass(frozen=True, slots=True)
class Json:
    """A value that is no string, as it was spelled."""

    spelling: str


type Hidden = str | Json
type Memory = dict[str, Hidden | None]
"""What stands behind each mark that was made; None where two values share it, or it came from outside."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the rules' paths a value is. `is_data`: paths and names of members count from here on. `may_match`: an
    object may say what the value has to be, and stand where the value itself would. `by`: the rule that masks the
    value whole."""

    is_data: bool
    paths: tuple[frozenset[int], ...]
    may_match: bool = False
    by: str = ""


def is_marked(text: str) -> bool:
    """May there be a mark in it? Costs a look, where to find them costs a search."""
    return _BEGINNING in text


def normal(name: str) -> str:
    """`Card-Number`, `card_number` and `cardNumber` are one name."""
    return re.sub(r"[\W_]", "", name).casefold()


class Masker:
    """Rules, ready for use. Falsy where there are none."""

    def __init__(self, rules: Iterable[Rule], salt: bytes) -> None:
        rules = tuple(rules)
        self._salt = salt
        self.names = tuple(dict.fromkeys(rule.name for rule in rules))
        self.sha256 = hashlib.sha256(repr((rules, salt)).encode()).hexdigest()  # another one if it writes otherwise
        self.paths: list[tuple[str, Path]] = []
        self.keys: dict[str, str] = {}
        self.patterns: list[tuple[str, Pattern]] = []
        for rule in rules:
            match rule.kind:
                case "path":
                    self.paths.append((rule.name, parse_path(rule.expression)))
                case "key":
                    for name in rule.expression.split(","):
                        self.keys.setdefault(normal(name), rule.name)
                case "pattern":
                    self.patterns.append((rule.name, pattern_of(rule.expression)))
                case other:
                    raise ValueError(f"There is no kind of rule {other!r}.")
        self.keys.pop("", None)

    def __bool__(self) -> bool:
        return bool(self.paths or self.keys or self.patterns)

    def document(self, text: str, memory: Memory | None = None) -> str:
        """JSON text of arguments or a result, which may be cut."""
        return self._masked(text, memory, is_data=True)

    def structure(self, text: str, memory: Memory | None = None) -> str:
        """JSON text of a conversation or a record of ours, which may be cut: paths and names of members count within
        its data only (DATA_MEMBERS, and JSON inside of strings), patterns everywhere."""
        return self._masked(text, memory, is_data=False)

    def prose(self, text: str, memory: Memory | None = None, *, cut: bool = False) -> str:
        """Text that is no JSON: a note, an error. `cut`: it is the beginning of one."""
        memory = {} if memory is None else memory
        _learn(text, memory)
        return _Work(self, memory, carried=_carried(memory)).plain(text, cut=cut)

    def sentence(self, text: str, memory: Memory | None = None, *, cut: bool = False) -> str:
        """Text that quotes evidence in typographic marks, from who knows where in it: what is quoted is left out where
        rules go by a value's place."""
        if self.paths or self.keys:
            text = _QUOTED.sub("“…”", text)
        return self.prose(text, memory, cut=cut)

    def mark(self, name: str, value: Hidden, memory: Memory) -> str:
        """The mark of a value. What stands behind it goes into `memory`."""
        kind, text = ("j", value.spelling) if isinstance(value, Json) else ("s", value)
        digest = hmac.new(self._salt, f"{kind}{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        mark = f"{{masked:{name}:{digest[:8]}}}"
        memory[mark] = value if memory.get(mark, value) == value else None
        return mark

    def _masked(self, text: str, memory: Memory | None, *, is_data: bool) -> str:
        memory = {} if memory is None else memory
        _learn(text, memory)
        before = _carried(memory)
        work = _Work(self, memory, carried=before)
        masked = work.json(text, is_data=is_data)
        if any(value not in before for value in work.found):
            # What was masked by its place may stand elsewhere in the same text: in what the user wrote, say.
            masked = _Work(self, memory, carried=_carried(memory)).json(text, is_data=is_data)
        return masked


@dataclass(slots=True)
class _Work:
    """One reading of one text. `found`: strings that were masked for their place; `carried`: values that were masked
    before, by their marks, which are masked wherever they stand."""

    rules: Masker
    memory: Memory
    carried: Mapping[str, str] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    depth: int = 0

    def json(self, text: str, *, is_data: bool) -> str:
        root = Place(is_data=is_data, paths=(START,) * len(self.rules.paths))
        return rewrite(text, root, self)

    def plain(self, text: str, *, cut: bool = False) -> str:
        """Text with what patterns find, and what is carried, masked. Of text that was cut, the last word may be half
        of something: it is left out."""
        if cut and (self.rules.patterns or self.carried):
            kept = text[: max(0, len(text) - UNFINISHED)]
            text = kept[: max((kept.rfind(space) for space in " \n\t"), default=-1) + 1]
        for value, mark in self.carried.items():
            text = text.replace(value, mark)
        for name, pattern in self.rules.patterns:
            text = self._spliced(text, name, pattern)
        return text

    def inward(self, place: Place, key: Key) -> Place:
        paths = tuple(path.after(at, key) for (_, path), at in zip(self.rules.paths, place.paths, strict=True))
        if not place.is_data:
            is_data = key in DATA_MEMBERS
            return Place(is_data=is_data, paths=(START,) * len(self.rules.paths), may_match=key == "args")
        if place.may_match and (key in MATCHERS or (place.by and isinstance(key, int))):
            paths = tuple(at | within for at, within in zip(place.paths, paths, strict=True))
        by = next((name for (name, path), at in zip(self.rules.paths, paths, strict=True) if path.ends(at)), "")
        if not by and isinstance(key, str) and self.rules.keys:
            by = self.rules.keys.get(normal(key), "")
        return Place(is_data=True, paths=paths, may_match=place.may_match, by=by or place.by)

    def whole(self, place: Place, spelling: Callable[[], str]) -> str | None:
        if not place.by:
            return None
        text = spelling()
        if text == "null" or MARK.fullmatch(text[1:-1]) or (place.may_match and _is_matcher(text)):
            return None
        value: Hidden = Json(text)
        if text[0] == '"':
            string = decoded(text)
            value = string.value
            if len(value) >= MIN_CARRIED and not string.cut:
                self.found.add(value)
        return f'"{self.rules.mark(place.by, value, self.memory)}"'

    def scalar(self, place: Place, value: Scalar) -> str | None:
        match value:
            case Text():
                masked = self._string(value)
                return None if masked == value.value and not value.cut else spelled(masked)
            case Plain(spelling):
                # A telephone or card number may come as a number.
                for name, pattern in self.rules.patterns:
                    if spelling[-1:].isdigit() and any(True for _ in pattern.spans(spelling)):
                        return f'"{self.rules.mark(name, Json(spelling), self.memory)}"'
        return None

    def name(self, value: Text) -> str | None:
        masked = self.plain(value.value, cut=value.cut)
        return None if masked == value.value else spelled(masked)

    def _string(self, string: Text) -> str:
        value = string.value
        if value.lstrip()[:1] not in ("{", "[") or self.depth >= MAX_NESTING:
            return self.plain(value, cut=string.cut)
        self.depth += 1
        masked = self.json(value, is_data=True)
        self.depth -= 1
        # What only looks like JSON is text; patterns then count outside of its strings, too.
        return masked if _is_json(value) else self.plain(masked, cut=string.cut)

    def _spliced(self, text: str, name: str, pattern: Pattern) -> str:
        parts: list[str] = []
        done = 0
        for start, end in pattern.spans(text):
            if _in_mark(text, start, end):
                continue
            parts += [text[done:start], self.rules.mark(name, text[start:end], self.memory)]
            done = end
        return "".join([*parts, text[done:]]) if parts else text


def restored(text: str, memory: Memory) -> str:
    """JSON text with what stands behind its marks put back, whatever place they were moved to. Raises UnknownMark."""
    return rewrite(text, None, _Restoring(memory)) if is_marked(text) else text


def restored_prose(text: str, memory: Memory) -> str:
    """The same of text that is no JSON. Marks that are not known stay: people quote what they see."""
    return MARK.sub(
        lambda match: match.group() if memory.get(match.group()) is None else _text_behind(match, memory), text
    )


class UnknownMark(ValueError):
    """A mark that nobody made here: what stands behind it is not known."""

    def __init__(self, mark: str) -> None:
        super().__init__(mark)
        self.mark = mark


@dataclass(slots=True)
class _Restoring:
    memory: Memory

    def inward(self, place: None, key: Key) -> None:
        return None

    def whole(self, place: None, spelling: Callable[[], str]) -> str | None:
        return None

    def scalar(self, place: None, value: Scalar) -> str | None:
        if not isinstance(value, Text) or not is_marked(value.value):
            return None
        if MARK.fullmatch(value.value):
            behind = _behind(value.value, self.memory)
            return behind.spelling if isinstance(behind, Json) else spelled(behind)
        if value.value.lstrip()[:1] in ("{", "[") and _is_json(value.value):
            return spelled(rewrite(value.value, None, self))
        return spelled(_put_back(value.value, self.memory))

    def name(self, value: Text) -> str | None:
        return spelled(_put_back(value.value, self.memory)) if is_marked(value.value) else None


def _put_back(text: str, memory: Memory) -> str:
    return MARK.sub(partial(_text_behind, memory=memory), text)


def _text_behind(match: re.Match[str], memory: Memory) -> str:
    behind = _behind(match.group(), memory)
    return behind.spelling if isinstance(behind, Json) else behind


def _behind(mark: str, memory: Memory) -> Hidden:
    behind = memory.get(mark)
    if behind is None:
        raise UnknownMark(mark)
    return behind


def _learn(text: str, memory: Memory) -> None:
    """Marks that are part of a text as it is kept (what was masked when it came in) stand for themselves."""
    if is_marked(text):
        for match in MARK.finditer(text):
            memory.setdefault(match.group(), match.group())


def _carried(memory: Memory) -> dict[str, str]:
    """The newest strings that were masked whole, longest first: a short one inside a longer one must not leave the
    rest of it behind."""
    values = [
        (value, mark)
        for mark, value in list(memory.items())[-MAX_CARRIED:]
        if isinstance(value, str) and len(value) >= MIN_CARRIED and value != mark
    ]
    return dict(sorted(values, key=lambda pair: -len(pair[0])))


def _in_mark(text: str, start: int, end: int) -> bool:
    window = max(0, start - 48)
    return any(
        window + mark.start() <= start and end <= window + mark.end() for mark in MARK.finditer(text[window : end + 48])
    )


def _is_matcher(text: str) -> bool:
    """Does an object say what a value has to be? What is in it is then masked, and it can still be read."""
    try:
        value = json.loads(text) if text[0] == "{" else None
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value) and value.keys() <= MATCHERS


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
