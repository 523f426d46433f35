"""One attempt at a case, and what the judge makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quality.cases.values import jsonable


class Ending(StrEnum):
    """How an attempt came to its end."""

    ANSWERED = "answered"  # the model wrote a final reply, or everything that there was to record is here
    STOPPED = "stopped"  # cut by a limit of the replay: no final reply was reached
    DIVERGED = "diverged"  # a call had no recorded result, and the miss policy says stop
    ERROR = "error"  # transport, rate limit, budget: nothing that the model did
    RUNNING = "running"  # it goes on: ask `Judgement.decided` whether it needs to


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 (a verdict)
    FAIL = "fail"
    INVALID_CALL = "invalid_call"  # fails, and a call was made that could not have run
    DIVERGED = "diverged"  # the recording ended before the expectation was decided
    ERROR = "error"  # could not be judged; never enters a rate


@dataclass(frozen=True, slots=True)
class Served:
    """What a call was answered with. `text` is the result as JSON text; text that is no JSON stays text."""

    text: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the model made it.

    `arguments` is JSON text as the model wrote it, or an object that was read from it (text is better: it has exact
    numbers). Empty text, and None, stand for no arguments. `fault` says in words why it could not be read as a call at
    all, if so; it is a call nevertheless.
    """

    name: str
    arguments: str | Mapping[str, Any] | None = None
    served: Served | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One attempt: the calls of each model reply in their order, and the final text. A reply without calls is an empty
    cycle; the last one may be left out. `error` says what went wrong where `ending` is `error`."""

    cycles: tuple[tuple[Call, ...], ...] = ()
    reply: str | None = None
    ending: Ending = Ending.ANSWERED
    error: str = ""

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls in their order: `Reason.call` counts these."""
        return tuple(call for cycle in self.cycles for call in cycle)

    @property
    def num_calls(self) -> int:
        return sum(map(len, self.cycles))

    @property
    def num_cycles(self) -> int:
        """Model replies, the final text among them."""
        text_follows = self.reply is not None and (not self.cycles or bool(self.cycles[-1]))
        return len(self.cycles) + text_follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a sample does not pass. `step` is a place in `calls.steps` (or in `forbid`, for `forbidden_call`), `call`
    counts all calls of the sample from 0, `path` is a JSON pointer into the call's arguments (or into the expectation).
    `quality.cases.explain.CODES` lists the codes."""

    code: str
    step: int | None = None
    call: int | None = None
    tool: str | None = None
    path: str | None = None
    expected: Any = None
    got: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "code": self.code,
            "step": self.step,
            "call": self.call,
            "tool": jsonable(self.tool),
            "path": jsonable(self.path),
            "expected": jsonable(self.expected),
            "got": jsonable(self.got),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Reason":
        """A reason that was kept by `as_dict`."""
        return cls(
            code=str(stored.get("code")),
            **{name: stored.get(name) for name in ("step", "call", "tool", "path", "expected", "got")},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallValidity:
    """Could this call have run? Apart from whether it was right. `code` is empty for a valid call, else `not_a_call`,
    `unknown_tool`, `bad_json` or `bad_arguments`."""

    call: int
    cycle: int
    index: int
    tool: str
    code: str = ""
    path: str = ""
    message: str = ""

    @property
    def valid(self) -> bool:
        return not self.code

    def as_dict(self) -> dict[str, Any]:
        return {
            "call": self.call,
            "cycle": self.cycle,
            "index": self.index,
            "tool": jsonable(self.tool),
            "valid": self.valid,
            "code": self.code,
            "path": jsonable(self.path),
            "message": jsonable(self.message),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`decided`: nothing that could still follow would change the verdict, so a replay may stop here. `pairs` says
    which step each call was taken for: (step, call)."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    validity: tuple[CallValidity, ...] = ()
    decided: bool = True
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "reasons": [reason.as_dict() for reason in self.reasons],
            "validity": [each.as_dict() for each in self.validity],
        }
