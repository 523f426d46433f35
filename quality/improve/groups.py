"""Feedback that asks for the same fix, as groups: same label, tool, style and kind of fault.

A group's feedback falls into windows. What was said up to the decision of a proposal belongs to that proposal; what was
said after the newest decision is open: it belongs to the group's pending proposal, or waits to be tracked (again). A
`viewer` is whom blind queues keep others' labels from (`quality.review.queues.waiting`): his groups are of what he may
see. All functions need an open tenant scope.
"""

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import translation
from django.utils.translation import gettext as _

from quality.improve import keyset
from quality.improve.faults import describe_fault
from quality.models import ACTIONABLE, ArtifactKind, Feedback, Label, Proposal, ProposalState, ToolCall
from quality.review.queues.waiting import hidden_row, waits_blind
from quality.starts import start_as_read
from tenants.scope import current_tenant_id

PAGE_SIZE = 20
MAX_PAGE_SIZE = 100
MAX_EXAMPLES = 3
PREVIEW_CHARS = 200
CORRECTION_CHARS = 2_000
NOTE_CHARS = 500
UNTRACKED = "untracked"
OPEN = (UNTRACKED, ProposalState.PENDING.value)
STATES = (UNTRACKED, *ProposalState.values)
_LABELS_AN_EXAMPLE = 4  # rows read for one: several reviewers may say the same of it

type Order = Literal["newest", "largest"]
type Place = tuple[int, int, int | None]


class NoSuchGroup(LookupError):
    """No feedback says this."""


@dataclass(frozen=True, kw_only=True)
class GroupKey:
    label: str
    tool_name: str
    style_id: str
    fault: str

    @classmethod
    def of(cls, proposal: Proposal) -> "GroupKey":
        return cls(label=proposal.label, tool_name=proposal.tool_name, style_id=proposal.style_id, fault=proposal.fault)

    @property
    def title(self) -> str:
        """In words, for people."""
        return describe_fault(self.label, self.tool_name, self.fault)

    @property
    def title_in_english(self) -> str:
        """In words, to be kept: programs read it too."""
        with translation.override(settings.LANGUAGE_CODE):
            return self.title


@dataclass(frozen=True, kw_only=True)
class GroupFilter:
    """What the list is narrowed to; empty fields narrow nothing, but without `states` only open groups are shown."""

    labels: tuple[str, ...] = ()
    tool: str = ""
    style: str = ""
    fault: str = ""
    states: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reviewer:
    id: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Example:
    """One labelled item of a group, bounded. `reviewers` are all who say this of it."""

    feedback_id: int
    turn_id: int
    cycle: int
    call_id: int | None
    args_preview: str | None
    correction: str | None
    note_preview: str
    at: dt.datetime
    reviewers: tuple[Reviewer, ...] = ()

    @property
    def place(self) -> Place:
        return (self.turn_id, self.cycle, self.call_id)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of a group's feedback: what was last changed after `since` and not after `until`."""

    key: GroupKey
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @classmethod
    def of(cls, proposal: Proposal) -> "Window":
        return cls(key=GroupKey.of(proposal), since=proposal.covers_since, until=proposal.decided_at)


@dataclass(frozen=True, kw_only=True)
class Group:
    """`num_items` are calls (or replies without one), `num_feedback` the labels on them, as several reviewers may say
    the same. `proposal_id` is the pending proposal, or the one that decided all of it; `again_since` is the decided
    proposal after which it was said again."""

    key: GroupKey
    state: str
    num_items: int
    num_feedback: int
    first_at: dt.datetime
    newest_at: dt.datetime
    proposal_id: int | None
    again_since: int | None
    window: Window
    examples: tuple[Example, ...] = ()

    @property
    def title(self) -> str:
        return self.key.title

    @property
    def suggested_kind(self) -> ArtifactKind:
        return suggested_kind(self.key, offered=all(map(_is_offered, self.examples[:1])))

    @property
    def state_word(self) -> str:
        """What became of it so far, for people."""
        return _("not tracked") if self.state == "untracked" else str(ProposalState(self.state).label).lower()


@dataclass(frozen=True, kw_only=True)
class GroupPage:
    groups: list[Group]
    next: str | None


def suggested_kind(key: GroupKey, *, offered: bool = True) -> ArtifactKind:
    """What would most likely mend it. Between two tools that were both offered their descriptions decide; a tool that
    was not offered, or not named, is for the prompt to tell of. Wrong arguments are the schema's to forbid."""
    match key.label:
        case Label.BAD_ARGS:
            return ArtifactKind.TOOL_SCHEMA_PATCH
        case Label.WRONG_TOOL if offered and key.fault.partition(":")[2]:
            return ArtifactKind.TOOL_SCHEMA_PATCH
    return ArtifactKind.PROMPT_PATCH


def _is_offered(example: Example) -> bool:
    """Was the tool that the correction names among those the model had? Yes, unless the reviewer says no."""
    try:
        said = json.loads(example.correction or "{}")
    except (ValueError, RecursionError):
        return True
    return not isinstance(said, dict) or said.get("offered") is not False


# The label is spelled out beside each parameter: only so PostgreSQL sees that the partial index of groups fits.
_ACTIONABLE = ", ".join(f"'{label.value}'" for label in ACTIONABLE)
_KEY = "label, tool_name, style_id, fault"

# Of each group the open part if it has one, else what its newest decision covers.
_GROUPS = f"""
WITH newest AS (
  SELECT DISTINCT ON ({_KEY}) {_KEY}, id, state, covers_since, decided_at
  FROM agent_tool_call_improvement_proposals
  WHERE tenant_id = %(tenant)s AND decided_at IS NOT NULL
  ORDER BY {_KEY}, decided_at DESC, id DESC
), said AS (
  SELECT f.label, f.tool_name, f.style_id, u.fault, f.turn_id, f.cycle, f.call_id, f.updated_at,
    n.id AS decided_id, n.state AS decided_state, n.covers_since, n.decided_at,
    n.id IS NULL OR f.updated_at > n.decided_at AS is_open
  FROM agent_tool_call_feedback f
  CROSS JOIN LATERAL unnest(f.faults) AS u(fault)
  LEFT JOIN newest n
    ON (n.label, n.tool_name, n.style_id, n.fault) = (f.label, f.tool_name, f.style_id, u.fault)
  WHERE f.tenant_id = %(tenant)s AND f.label IN ({_ACTIONABLE}) AND f.label = ANY (%(labels)s)
    AND (%(tool)s::text IS NULL OR f.tool_name = %(tool)s)
    AND (%(style)s::text IS NULL OR f.style_id = %(style)s)
    AND (%(fault)s::text IS NULL OR u.fault = %(fault)s) AND NOT {hidden_row("f", "reviewer_id")}
), items AS (
  SELECT {_KEY}, is_open, decided_id, decided_state, covers_since, decided_at,
    count(*) AS num_feedback, min(updated_at) AS first_at, max(updated_at) AS newest_at
  FROM said
  WHERE is_open OR covers_since IS NULL OR updated_at > covers_since
  GROUP BY {_KEY}, is_open, decided_id, decided_state, covers_since, decided_at, turn_id, cycle, call_id
), parts AS (
  SELECT DISTINCT ON ({_KEY}) {_KEY}, is_open, decided_id, decided_state, covers_since, decided_at,
    sum(num_feedback)::bigint AS num_feedback, count(*) AS num_items,
    min(first_at) AS first_at, max(newest_at) AS newest_at
  FROM items
  GROUP BY {_KEY}, is_open, decided_id, decided_state, covers_since, decided_at
  ORDER BY {_KEY}, is_open DESC
), groups AS (
  SELECT g.*, p.id AS pending_id,
    CASE WHEN p.id IS NOT NULL THEN 'pending' WHEN g.is_open THEN 'untracked' ELSE g.decided_state END AS state,
    (g.newest_at AT TIME ZONE 'UTC')::date AS newest_day
  FROM parts g
  LEFT JOIN agent_tool_call_improvement_proposals p
    ON p.tenant_id = %(tenant)s AND p.state = 'pending' AND g.is_open
    AND (p.label, p.tool_name, p.style_id, p.fault) = (g.label, g.tool_name, g.style_id, g.fault)
)
SELECT {_KEY}, state, num_items, num_feedback, first_at, newest_at, newest_day, is_open, pending_id, decided_id,
  covers_since, decided_at
FROM groups
"""  # noqa: S608  (names of ours; what was asked comes in as parameters)

_ORDERS: dict[str, tuple[str, ...]] = {
    "newest": ("newest_day", "num_items", "newest_at"),
    "largest": ("num_items", "newest_at"),
}
_KINDS = {"newest_day": keyset.day, "num_items": keyset.number, "newest_at": keyset.moment}


def find(
    wanted: GroupFilter,
    *,
    cursor: str | None = None,
    page_size: int = PAGE_SIZE,
    order: Order = "newest",
    viewer: int | None = None,
) -> GroupPage:
    """A page of groups with examples, of what a `viewer` may see. `newest` sorts by the day of the newest label and
    within a day by size, `largest` by size. A group that grows while pages are turned may move; it is never cut. Raises
    BadCursor."""
    columns = [*_ORDERS[order], "label", "tool_name", "style_id", "fault"]
    params = {
        "labels": list(wanted.labels or ACTIONABLE),
        "tool": wanted.tool or None,
        "style": wanted.style or None,
        "fault": wanted.fault or None,
        "states": list(wanted.states or OPEN),
        "rows": page_size + 1,
        "viewer": viewer,
    }
    after = ""
    if cursor:
        kinds = [_KINDS.get(column, keyset.text) for column in columns]
        params |= {f"at_{name}": value for name, value in zip(columns, keyset.read(cursor, *kinds), strict=True)}
        after = f"AND ({', '.join(columns)}) < ({', '.join(f'%(at_{name})s' for name in columns)})"
    down = ", ".join(f"{column} DESC" for column in columns)
    rows = _rows(f"{_GROUPS} WHERE state = ANY (%(states)s) {after} ORDER BY {down} LIMIT %(rows)s", params)
    following = keyset.write(*(rows[page_size - 1][name] for name in columns)) if len(rows) > page_size else None
    return GroupPage(groups=_with_examples([_group(row) for row in rows[:page_size]], viewer), next=following)


def get(key: GroupKey) -> Group:
    """The group with examples; raises NoSuchGroup."""
    params = {"labels": [key.label], "tool": key.tool_name, "style": key.style_id, "fault": key.fault, "viewer": None}
    rows = _rows(_GROUPS, params)
    if not rows:
        raise NoSuchGroup(_("No feedback says this, or not any more."))
    return _with_examples([_group(row) for row in rows], None)[0]


def feedback_of(proposal: Proposal) -> QuerySet[Feedback]:
    """The feedback that belongs to a proposal, newest first."""
    rows = Feedback.objects.filter(
        label=proposal.label,
        tool_name=proposal.tool_name,
        style_id=proposal.style_id,
        faults__contains=[proposal.fault],
    )
    if proposal.covers_since:
        rows = rows.filter(updated_at__gt=proposal.covers_since)
    if proposal.decided_at:
        rows = rows.filter(updated_at__lte=proposal.decided_at)
    return rows.order_by("-updated_at", "-pk")


_WINDOWS = f"""
FROM unnest(%(label)s::text[], %(tool_name)s::text[], %(style_id)s::text[], %(fault)s::text[],
            %(since)s::timestamptz[], %(until)s::timestamptz[])
  WITH ORDINALITY AS g({_KEY}, since, until, place)
CROSS JOIN LATERAL (
  SELECT {{}} FROM agent_tool_call_feedback f
  WHERE f.tenant_id = %(tenant)s AND f.label IN ({_ACTIONABLE}) AND f.label = g.label
    AND f.tool_name = g.tool_name AND f.style_id = g.style_id AND g.fault = ANY (f.faults)
    AND (g.since IS NULL OR f.updated_at > g.since) AND (g.until IS NULL OR f.updated_at <= g.until)
    AND NOT {hidden_row("f", "reviewer_id")}
  {{}}
) f
"""  # noqa: S608
_COUNTS = "SELECT f.num_items, f.num_feedback " + _WINDOWS.format(
    "count(DISTINCT (turn_id, cycle, call_id)) AS num_items, count(*) AS num_feedback", ""
)
_EXAMPLES = (
    """
SELECT g.place, f.id AS feedback_id, f.turn_id, f.cycle, f.call_id, left(c.args, %(args)s) AS args_preview,
  f.correction, f.note_preview, f.updated_at AS at
"""
    + _WINDOWS.format(
        "id, turn_id, cycle, call_id, left(correction, %(correction)s) AS correction, "
        "left(note, %(note)s) AS note_preview, updated_at",
        "ORDER BY updated_at DESC, id DESC LIMIT %(rows)s",
    )
    + """
LEFT JOIN agent_tool_calls c ON c.tenant_id = %(tenant)s AND c.id = f.call_id
ORDER BY g.place, f.updated_at DESC, f.id DESC
"""
)


def counts_of(windows: Sequence[Window], *, viewer: int | None = None) -> list[tuple[int, int]]:
    """Items and labels in each window, of those that a `viewer` may see; in one query."""
    found = _rows(f"{_COUNTS} ORDER BY g.place", _asked(windows) | {"viewer": viewer})
    return [(row["num_items"], row["num_feedback"]) for row in found]


def examples_of(
    windows: Sequence[Window], *, limit: int = MAX_EXAMPLES, viewer: int | None = None
) -> list[tuple[Example, ...]]:
    """The newest labelled items of each window that a `viewer` may see, each once, in two queries."""
    if not windows:
        return []
    limits = {
        "args": PREVIEW_CHARS,
        "correction": CORRECTION_CHARS,
        "note": NOTE_CHARS,
        "rows": limit * _LABELS_AN_EXAMPLE,
        "viewer": viewer,
    }
    found: list[dict[Place, Example]] = [{} for _ in windows]
    for row in _rows(_EXAMPLES, {**_asked(windows), **limits}):
        here = found[row.pop("place") - 1]
        example = Example(**row | _as_read(row))
        if len(here) < limit:
            here.setdefault(example.place, example)
    reviewers = _reviewers(found, viewer)
    return [
        tuple(replace(example, reviewers=tuple(_who(reviewers, example, window))) for example in here.values())
        for here, window in zip(found, windows, strict=True)
    ]


def _as_read(row: dict[str, Any]) -> dict[str, str | None]:
    """What an example shows of evidence: the call first, for what is masked in it is masked in what was said of it."""
    return {
        "args_preview": start_as_read(ToolCall, "args", PREVIEW_CHARS, row["args_preview"]),
        "correction": start_as_read(Feedback, "correction", CORRECTION_CHARS, row["correction"]),
        "note_preview": start_as_read(Feedback, "note", NOTE_CHARS, row["note_preview"]),
    }


def _reviewers(found: Iterable[dict[Place, Example]], viewer: int | None) -> dict[Place, list[Feedback]]:
    places = {place for here in found for place in here}
    calls = Q(call_id__in={call_id for _, _, call_id in places if call_id})
    without = [(turn_id, cycle) for turn_id, cycle, call_id in places if call_id is None]
    replies = Q(
        call_id=None, turn_id__in={turn_id for turn_id, _ in without}, cycle__in={cycle for _, cycle in without}
    )
    by_place: dict[Place, list[Feedback]] = {}
    rows = Feedback.objects.filter(calls | replies, label__in=ACTIONABLE).select_related("reviewer")
    if viewer is not None:
        rows = rows.exclude(waits_blind(viewer) & ~Q(reviewer=viewer))
    for row in rows.defer("correction", "note").order_by("created_at", "pk"):
        by_place.setdefault((row.turn_id, row.cycle, row.call_id), []).append(row)
    return by_place


def _who(reviewers: dict[Place, list[Feedback]], example: Example, window: Window) -> Iterator[Reviewer]:
    for row in reviewers.get(example.place, ()):
        if row.label == window.key.label and window.key.fault in row.faults:
            yield Reviewer(id=row.reviewer_id, name=str(row.reviewer))


def _asked(windows: Sequence[Window]) -> dict[str, Any]:
    keys = [window.key for window in windows]
    return {
        "label": [key.label for key in keys],
        "tool_name": [key.tool_name for key in keys],
        "style_id": [key.style_id for key in keys],
        "fault": [key.fault for key in keys],
        "since": [window.since for window in windows],
        "until": [window.until for window in windows],
    }


def _group(row: dict[str, Any]) -> Group:
    key = GroupKey(**{name: row[name] for name in ("label", "tool_name", "style_id", "fault")})
    if row["is_open"]:
        window = Window(key=key, since=row["decided_at"])
    else:
        window = Window(key=key, since=row["covers_since"], until=row["decided_at"])
    return Group(
        key=key,
        state=row["state"],
        num_items=row["num_items"],
        num_feedback=row["num_feedback"],
        first_at=row["first_at"],
        newest_at=row["newest_at"],
        proposal_id=row["pending_id"] if row["is_open"] else row["decided_id"],
        again_since=row["decided_id"] if row["is_open"] else None,
        window=window,
    )


def _with_examples(groups: list[Group], viewer: int | None) -> list[Group]:
    examples = examples_of([group.window for group in groups], viewer=viewer)
    return [replace(group, examples=those) for group, those in zip(groups, examples, strict=True)]


def _rows(sql: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"tenant": current_tenant_id(), **params})
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
