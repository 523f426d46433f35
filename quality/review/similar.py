"""Calls like a given one: of the same tool, with the same fault, the same kind of error, or nearly the same arguments.

What is compared are *traits*, plain values; the window that is looked through, newest first, has a stated size, so that
an answer takes the same time whatever there is. Finding needs an open tenant scope.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Case, F, Value, When
from django.db.models.functions import Left, Length

from quality.calls import CallFilter, CallRow, Cursor, Position, matching, rows_of
from quality.models import Feedback, Hint, ToolCall
from quality.review.blind import hidden_calls
from quality.review.hints import BY_NAME
from tenants.masking import reading
from tenants.models import User

WINDOW = 2_000  # calls of the tool that one look goes through
MAX_SHOWN = 100
MAX_ARGS_CHARS = 20_000  # of what is longer the arguments are not compared
MAX_ERROR_CHARS = 1_000
MAX_LEAVES = 200
MIN_SHARE = 0.5  # of equal arguments, where the shape is the same
BY = ("fault", "error", "args")
# What these say is of the call itself; a slow call is like another slow one in nothing else.
TELLING_HINTS: Final = tuple(
    name for name in BY_NAME if name in {"args_not_object", "repeated_key", "schema_violation", "unknown_tool"}
)

_NAMED = re.compile(
    r"""
    (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` | «[^»]*» | “[^”]*” )
    | (?P<id> \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b | \b(?=[\w-]*\d)[\w-]{6,} )
    | (?P<number> \d+(?:[.,:]\d+)* )
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a call is compared by. `faults` are kinds of faults (quality.improve.faults) and `rule:pointer` of hints;
    `leaves` are values by pointer, as JSON; `shape` says which pointers hold which kinds, items of arrays as one."""

    faults: frozenset[str] = frozenset()
    error: str = ""
    leaves: Mapping[str, str] = field(default_factory=dict)
    shape: frozenset[tuple[str, str]] = frozenset()
    has_args: bool = False


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """In what two calls of a tool are alike. `equal` of `whole` arguments are the same."""

    faults: tuple[str, ...] = ()
    error: bool = False
    same_shape: bool = False
    equal: int = 0
    whole: int = 0

    @property
    def share(self) -> float:
        return self.equal / self.whole if self.whole else float(self.same_shape)

    @property
    def by(self) -> tuple[str, ...]:
        """For which of BY it counts as similar."""
        args = self.same_shape and self.share >= MIN_SHARE
        return tuple(name for name, holds in zip(BY, (self.faults, self.error, args), strict=True) if holds)

    @property
    def score(self) -> float:
        """Orders what is found: a fault that people named tells most, then an error, then arguments."""
        return 4 * bool(self.faults) + 3 * self.error + 2 * self.share * self.same_shape + self.share


@dataclass(frozen=True, kw_only=True)
class Similar:
    row: CallRow
    likeness: Likeness


@dataclass(frozen=True, kw_only=True)
class Found:
    """The most similar calls first. `num_seen` calls of the tool were looked through; from `older` on there are more.
    `num_similar` may be more than are told."""

    calls: Sequence[Similar]
    num_similar: int
    num_seen: int
    older: str | None


def error_class(text: str | None) -> str:
    """What kind of error a text tells: without its numbers, ids and quoted strings, so that two of a kind are equal."""
    found = _NAMED.sub(lambda match: "…" if match["quoted"] else "#", (text or "")[:MAX_ERROR_CHARS])
    return " ".join(found.casefold().split())


def traits_of(args: str | None, error: str | None, faults: Iterable[str] = ()) -> Traits:
    """The traits of a call with these arguments (JSON text) and this error, and the faults that are known of it."""
    value = _read(args)
    leaves: dict[str, str] = {}
    shape: set[tuple[str, str]] = set()
    if isinstance(value, dict):
        _walk(value, "", "", leaves, shape)
    return Traits(
        faults=frozenset(faults),
        error=error_class(error),
        leaves=leaves,
        shape=frozenset(shape),
        has_args=isinstance(value, dict),
    )


class _Number(str):
    """A number as it was written: 1.10 and 1.1 are told apart."""

    __slots__ = ()


def _read(args: str | None) -> Any:
    if args is None or len(args) > MAX_ARGS_CHARS:
        return None
    try:
        return json.loads(args, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        return None


def _walk(value: Any, place: str, kind_of_place: str, leaves: dict[str, str], shape: set[tuple[str, str]]) -> None:
    kind = type(value).__name__
    if kind_of_place:
        shape.add((kind_of_place, kind))
    if isinstance(value, dict):
        for name, inner in value.items():
            step = name.replace("~", "~0").replace("/", "~1")
            _walk(inner, f"{place}/{step}", f"{kind_of_place}/{step}", leaves, shape)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _walk(inner, f"{place}/{number}", f"{kind_of_place}/*", leaves, shape)
    elif len(leaves) < MAX_LEAVES:
        leaves[place] = value if isinstance(value, _Number) else json.dumps(value)


def likeness(one: Traits, other: Traits) -> Likeness:
    """In what two calls of the same tool are alike."""
    places = {*one.leaves, *other.leaves}
    return Likeness(
        faults=tuple(sorted(one.faults & other.faults)),
        error=bool(one.error) and one.error == other.error,
        same_shape=one.has_args and other.has_args and one.shape == other.shape,
        equal=sum(one.leaves.get(place) == other.leaves.get(place) for place in places),
        whole=len(places),
    )


def find(
    call_id: int,
    *,
    user: User,
    by: Sequence[str] = BY,
    unlabelled: bool = False,
    cursor: Cursor | None = None,
) -> Found:
    """Calls like one, as this user may see them: labels that are hidden from him say nothing. Raises
    ToolCall.DoesNotExist. Some eight queries."""
    tool = ToolCall.objects.values_list("tool_name", flat=True).get(pk=call_id)
    wanted = CallFilter(tools=(tool,), labels=("none",) if unlabelled else ())
    calls = matching(wanted).exclude(pk=call_id)
    if cursor:
        calls = calls.filter(cursor.position.older())
    with reading.as_stored():  # compared, and not shown
        rows = list(_read_columns(calls.order_by("-started_at", "-id"))[: WINDOW + 1])
        (own,) = _read_columns(ToolCall.objects.filter(pk=call_id))
    more, rows = len(rows) > WINDOW, rows[:WINDOW]
    faults = _faults([call_id, *(row["pk"] for row in rows)], user)
    mine = traits_of(own["short_args"], own["told"], faults.get(call_id, ()))
    alike = []
    for place, row in enumerate(rows):
        like = likeness(mine, traits_of(row["short_args"], row["told"], faults.get(row["pk"], ())))
        if set(like.by) & set(by):
            alike.append((-like.score, place, row["pk"], like))
    alike.sort(key=lambda one: one[:2])
    shown = {pk: like for _, _, pk, like in alike[:MAX_SHOWN]}
    found = {row.id: row for row in rows_of(list(shown))}
    last = rows[-1] if more else None
    return Found(
        calls=[Similar(row=found[pk], likeness=like) for pk, like in shown.items() if pk in found],
        num_similar=len(alike),
        num_seen=len(rows),
        older=str(Cursor(position=Position(at=last["started_at"], id=last["pk"]))) if last else None,
    )


def _read_columns(calls: Any) -> Any:
    """What traits are made of, cut in the database: a result of megabytes is not fetched for its error."""
    told = Case(
        When(error__isnull=False, then=Left("error", MAX_ERROR_CHARS)),
        When(is_error=True, then=Left("result", MAX_ERROR_CHARS)),
        default=Value(""),
    )
    short = Case(When(short_length__lte=MAX_ARGS_CHARS, then=F("args")), default=Value(None))
    return (
        calls.annotate(short_length=Length("args"))
        .annotate(short_args=short, told=told)
        .values("pk", "started_at", "short_args", "told")
    )


def _faults(ids: Sequence[int], user: User) -> dict[int, set[str]]:
    """The faults of calls: those that labels speak of, and what telling hints found."""
    found: dict[int, set[str]] = {}
    hidden = hidden_calls(user, ids)
    labels = Feedback.objects.filter(call_id__in=ids).exclude(faults=[])
    for call_id, reviewer_id, faults in labels.values_list("call_id", "reviewer_id", "faults"):
        if call_id not in hidden or reviewer_id == user.pk:
            found.setdefault(call_id, set()).update(faults)
    hints = Hint.objects.filter(call_id__in=ids, rule__in=TELLING_HINTS)
    for call_id, rule, path in hints.values_list("call_id", "rule", "path"):
        found.setdefault(call_id, set()).add(f"hint:{rule}:{path}")
    return found
