"""The expectation of a case as frozen values; `quality.cases.schema.parse` makes them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from quality.cases.matchers import Judged, Matcher
from quality.cases.replies import Check
from quality.cases.toolset import name_of


class Mode(StrEnum):
    """How calls and steps have to go together."""

    EXACT = "exact"  # these steps, in this order, none more
    ANY_ORDER = "any_order"  # these steps, each once, none more
    IN_ORDER = "in_order"  # these steps in this order; others may lie between
    CONTAINS = "contains"  # every step; others allowed
    ONLY = "only"  # every call fits some step; steps may be missing
    FIRST = "first"  # the first model reply alone, as any_order
    NONE = "none"  # no call at all
    ANY = "any"  # at least one call, whichever


@dataclass(frozen=True, slots=True)
class ToolName:
    """A name, or a glob (`cancel_*`). Dots count as underscores."""

    text: str

    @property
    def is_glob(self) -> bool:
        return "*" in self.text or "?" in self.text

    def fits(self, tool: str) -> bool:
        if self.is_glob:
            return fnmatchcase(name_of(tool), name_of(self.text).replace("[", "[[]"))
        return name_of(tool) == name_of(self.text)


@dataclass(frozen=True, slots=True)
class Argument:
    """What the value at a pointer has to be. `name` is the argument that the pointer begins with."""

    pointer: str
    name: str
    matcher: Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What is thought of arguments that are not mentioned."""

    allowed: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def ignores(self, name: str) -> bool:
        return any(fnmatchcase(name, glob.replace("[", "[[]")) for glob in self.ignored)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallShape:
    """One way in which a call can be right (or, in `forbid`, wrong)."""

    tool: ToolName
    args: tuple[Argument, ...] = ()
    extra: Extra = Extra()
    source: Any = None


@dataclass(frozen=True, slots=True)
class Count:
    """How often; `most` None: as often as you like."""

    least: int = 1
    most: int | None = 1


@dataclass(frozen=True, slots=True)
class When:
    """A step is expected only if the served result of an earlier one is so."""

    result: int
    pointer: str
    matcher: Matcher
    source: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call that is expected: of one shape, or of any of several. `number` is its place in `calls.steps`; steps of one
    group share it. `group`: all steps of the same group have to be called in one reply. `count` None: not said."""

    number: int
    shapes: tuple[CallShape, ...]
    count: Count | None = None
    when: When | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    mode: Mode = Mode.FIRST
    steps: tuple[Step, ...] | None = None  # None: nothing is said about which calls
    parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_calls: int | None = None
    max_cycles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    must: tuple[Check, ...] = ()
    must_not: tuple[Check, ...] = ()
    judge: Judged | None = None

    def __bool__(self) -> bool:
        return bool(self.must or self.must_not or self.judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How many samples, and how many of them have to pass: `all`, `majority`, or a share."""

    k: int | None = None
    need: str | float = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    calls: Calls | None = None
    forbid: tuple[CallShape, ...] = ()
    limits: Limits = Limits()
    retry: str | None = None  # same_tool, stop or ask
    reply: Reply = Reply()
    verdict: Rule = Rule()
    null_is_absent: bool = False
    source: Any = None

    @property
    def first_cycle_only(self) -> bool:
        """Nothing after the first model reply is looked at, so a replay stops there."""
        return self.calls is not None and self.calls.mode is Mode.FIRST

    @property
    def needs_judge(self) -> bool:
        """Some check asks a model."""
        return self.reply.judge is not None or any(part.any_part(lambda each: each.asks) for part in self.matchers())

    def matchers(self) -> Iterator[Matcher]:
        steps = (self.calls.steps if self.calls else None) or ()
        for shape in [shape for step in steps for shape in step.shapes] + list(self.forbid):
            for argument in shape.args:
                yield argument.matcher
        for step in steps:
            if step.when:
                yield step.when.matcher
