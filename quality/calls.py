"""Finding tool calls: the filter, the pages of a list, the capped count. Pages and API share it.

Lists never read evidence: rows carry a preview of the arguments and the label, nothing else that can grow. All
functions need an open tenant scope.
"""

import base64
import binascii
import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection
from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from quality.models import CallHour, Feedback, Hint, ItemTag, Review, ToolCall, TouchedHour
from quality.review.hints import BY_NAME
from quality.review.queues.waiting import waits_blind
from quality.starts import Start
from tenants.scope import current_tenant_id

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
COUNT_CAP = 10_000
HINT_CAP = 500
PREVIEW_CHARS = 200
UNLABELLED = "none"
ANY_HINT = "any"
LEFT_OUT, ONLY_ARCHIVED, WITH_ARCHIVED = "", "yes", "any"


class BadCursor(ValueError):
    """A cursor that we did not make, or that a version before us made."""


@dataclass(frozen=True, kw_only=True)
class CallFilter:
    """What a list is narrowed to; empty fields narrow nothing. Several tools, labels, hints or tags mean any of
    them.

    `error` is yes, no, or none (no outcome was recorded); a label `none` is a call without one, a hint `any` is one of
    any rule; a toolset is named by its SHA-256. What was archived is left out, unless `archived` is yes (nothing else)
    or any. `since` is included, `until` is not; `arrived_until` is of the time at which a call came in here, included,
    and freezes a filter: what comes later, of whatever time, does not match.

    `viewer` is whom a blind queue keeps others' labels from: of an item that waits there only his own label counts. It
    is set by `quality.review.blind.seen_by`, and no part of what a person says.
    """

    conversation: str = ""
    message: str = ""
    outbound_message: str = ""
    contact: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    source: str = ""
    style: str = ""
    model: str = ""
    toolset: str = ""
    labels: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    archived: str = LEFT_OUT
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    arrived_until: dt.datetime | None = None
    viewer: int | None = None

    def context(self) -> Q:
        """The conditions that calls and turns have in common."""
        columns = {
            "conversation_id": self.conversation,
            "outbound_message_id": self.outbound_message,
            "contact_id": self.contact,
            "source": self.source,
            "style_id": self.style,
            "model": self.model,
            "toolset__sha256": self.toolset,
            "message_id": self.message,
            "started_at__gte": self.since,
            "started_at__lt": self.until,
            "created_at__lte": self.arrived_until,
        }
        return Q(**{column: value for column, value in columns.items() if value})


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in a list that is sorted newest first."""

    at: dt.datetime
    id: int

    def older(self) -> Q:
        # The bound in front lets PostgreSQL start its index scan here; the bare OR would read all rows before it.
        return Q(started_at__lte=self.at) & (Q(started_at__lt=self.at) | Q(id__lt=self.id))

    def newer(self) -> Q:
        return Q(started_at__gte=self.at) & (Q(started_at__gt=self.at) | Q(id__gt=self.id))


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a page begins, and in which direction it goes. Opaque outside: `str()` and `read()` are its two ends."""

    position: Position
    backwards: bool = False

    def __str__(self) -> str:
        direction = "p" if self.backwards else "n"
        text = f"1{direction}{self.position.at.isoformat()}/{self.position.id}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """The cursor spelled so; raises BadCursor."""
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
            moment, _, number = plain[2:].partition("/")
            position = Position(at=dt.datetime.fromisoformat(moment), id=int(number))
            if plain[:2] not in {"1n", "1p"} or position.at.tzinfo is None or not 0 <= position.id < 2**63:
                raise BadCursor
        except (ValueError, binascii.Error) as error:
            raise BadCursor("This cursor is not one of ours. Start again without it.") from error
        return cls(position=position, backwards=plain[1] == "p")


@dataclass(frozen=True, kw_only=True, slots=True)
class HintRow:
    """What a rule says of a call: see `quality.review.hints`."""

    rule: str
    cycle: int
    path: str
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRow:
    """One line of a list."""

    id: int
    turn_id: int
    cycle: int
    index: int
    tool_name: str
    args_preview: str | None
    is_error: bool | None
    state: str
    started_at: dt.datetime
    time_recorded: bool
    duration_ms: int | None
    source: str
    conversation_id: str
    contact_id: str
    message_id: str
    outbound_message_id: str
    model: str
    style_id: str
    label: str | None = None
    num_labels: int = 0
    hints: tuple[HintRow, ...] = ()
    tags: tuple[str, ...] = ()
    is_archived: bool = False


_ADDED = {"args_preview", "label", "num_labels", "hints", "tags", "is_archived"}
_COLUMNS = [name for name in CallRow.__dataclass_fields__ if name not in _ADDED]


@dataclass(frozen=True, kw_only=True)
class CallPage:
    """Rows newest first, and the cursors of the pages around them (None: there is none)."""

    rows: list[CallRow]
    next: str | None
    previous: str | None


def matching(wanted: CallFilter) -> QuerySet[ToolCall]:
    """The calls that a filter lets through, in no order yet."""
    calls = ToolCall.objects.filter(wanted.context())
    if wanted.tools:
        calls = calls.filter(tool_name__in=wanted.tools)
    if wanted.error:
        calls = calls.filter(is_error={"yes": True, "no": False, "none": None}[wanted.error])
    named = {"style_id": wanted.style, "model": wanted.model, "source": wanted.source}
    if given := {column: value for column, value in named.items() if value}:
        # Calls have no index by these. Where the counts by the hour know of none, all calls would be read for nothing.
        calls = calls.filter(Exists(CallHour.objects.filter(**given)) | Exists(TouchedHour.objects.all()))
    return calls.filter(marked_as(wanted, call_id=OuterRef("pk")))


def marked_as(wanted: CallFilter, **item: Any) -> Q:
    """The conditions of a filter on what hangs on an item: labels, hints, tags, the archive. `item` ties them to the
    outer row: `call_id`, or `turn_id` and `call_id=None`."""
    condition = Q()
    if wanted.archived != WITH_ARCHIVED:
        condition &= archived_as(is_archived=wanted.archived == ONLY_ARCHIVED, **item)
    if wanted.labels:
        condition &= labelled_as(wanted.labels, wanted.viewer, **item)
    if wanted.hints:
        condition &= hinted_as(wanted.hints, **item)
    if wanted.tags:
        condition &= Q(Exists(ItemTag.objects.filter(**item, tag__in=wanted.tags).order_by()))
    return condition


def archived_as(*, is_archived: bool, **item: Any) -> Q:
    """Is the item in the archive, or is it not? The archive has an index of its own, which holds nothing else."""
    found = Exists(Review.objects.filter(**item, archived_at__isnull=False).order_by())
    return Q(found) if is_archived else Q(~found)


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """Marks on calls, kept in a narrow table in the order of the list: of these values, an index scan each."""

    table: str
    column: str
    values: Sequence[str]


def _rarest_marks(wanted: CallFilter) -> tuple[_Marks, CallFilter] | None:
    """Marks that a filter asks for, and the filter without them; None if it asks for none."""
    if wanted.tags:
        marks = _Marks(table="agent_tool_call_tags", column="tag", values=wanted.tags)
        return marks, replace(wanted, tags=())
    if wanted.hints:
        rules = list(BY_NAME) if ANY_HINT in wanted.hints else wanted.hints
        return _Marks(table="agent_tool_call_hints", column="rule", values=rules), replace(wanted, hints=())
    return None


def nearest[R](
    wanted: CallFilter,
    take: Callable[[QuerySet[ToolCall]], Sequence[R]],
    *,
    at: dt.datetime | None,
    newer: bool,
    limit: int,
) -> Sequence[R]:
    """What `take` finds first, up to `limit`, among the calls that a filter lets through, on one side of a time.

    With tags or hints in the filter it begins with the calls of the nearest of these, which are in the order of the
    list already: looked for call by call, rare ones would cost a walk over all calls.
    """
    if found := _rarest_marks(wanted):
        marks, others = found
        window = 2 * limit
        while window < COUNT_CAP:
            ids = _nearest_marked(marks, at=at, newer=newer, window=window)
            rows = take(matching(others).filter(pk__in=set(ids)))
            if len(rows) == limit or len(ids) < window:
                return rows
            window *= 8
    return take(matching(wanted))


def _nearest_marked(marks: _Marks, *, at: dt.datetime | None, newer: bool, window: int) -> list[int]:
    """Ids of the calls of the `window` marks nearest to a time, one scan of an index for each value. A call with
    several of them is told several times."""
    order, sign = ("", ">=") if newer else ("DESC", "<=")
    side = "" if at is None else f"AND m.started_at {sign} %(at)s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT s.call_id FROM unnest(%(values)s::text[]) v(name) CROSS JOIN LATERAL ("  # noqa: S608  (ours)
            f"SELECT m.started_at, m.call_id FROM {marks.table} m WHERE m.tenant_id = %(tenant)s "
            f"AND m.{marks.column} = v.name AND m.call_id IS NOT NULL {side} "
            f"ORDER BY m.started_at {order}, m.call_id {order} LIMIT %(window)s) s "
            f"ORDER BY s.started_at {order}, s.call_id {order} LIMIT %(window)s",
            {"tenant": current_tenant_id(), "values": list(marks.values), "at": at, "window": window},
        )
        return [call_id for (call_id,) in cursor.fetchall()]


def hinted_as(hints: Iterable[str], **item: Any) -> Q:
    """The condition that an item, given by `call_id`, or by `turn_id` and `call_id=None`, has a hint of these rules."""
    found = Hint.objects.filter(**item).order_by()
    return Q(Exists(found if ANY_HINT in hints else found.filter(rule__in=list(hints))))


def labelled_as(labels: Iterable[str], viewer: int | None = None, **item: Any) -> Q:
    """Has the item one of these labels (`none`: no label at all), as `viewer` may see it? `item` ties the review to the
    outer row."""
    reviews = Review.objects.filter(**item, label__isnull=False).order_by()
    given = [label for label in labels if label != UNLABELLED]
    having = Q(label__in=given)
    if given and viewer is not None:
        having = _as_seen(given, viewer, with_none=UNLABELLED in labels)
    condition = Q(Exists(reviews.filter(having))) if given else Q()
    if UNLABELLED in labels:
        condition |= Q(~Exists(reviews))
    return condition


def _as_seen(labels: list[str], viewer: int, *, with_none: bool) -> Q:
    """The condition on a review that its item has one of these labels for somebody from whom others' are kept; of
    items that are kept so, his own label decides, or that he gave none."""
    of_call = Feedback.objects.filter(reviewer=viewer, call_id=OuterRef("call_id")).order_by()
    of_turn = Feedback.objects.filter(
        reviewer=viewer, turn_id=OuterRef("turn_id"), cycle=OuterRef("cycle"), call_id=None
    ).order_by()
    mine = Q(Exists(of_call.filter(label__in=labels))) | Q(Exists(of_turn.filter(label__in=labels)), call_id=None)
    if with_none:
        mine |= Q(~Exists(of_call), call_id__isnull=False) | Q(~Exists(of_turn), call_id=None)
    hidden = waits_blind(viewer)
    return (Q(label__in=labels) & ~hidden) | (hidden & mine)


def find(wanted: CallFilter, *, cursor: Cursor | None = None, page_size: int = PAGE_SIZE) -> CallPage:
    """One page of calls, newest first. Four queries, whatever the size; more with tags or hints in the filter."""
    backwards = cursor is not None and cursor.backwards
    at = cursor.position.at if cursor else None
    order = ("started_at", "id") if backwards else ("-started_at", "-id")

    def take(calls: QuerySet[ToolCall]) -> list[Any]:
        if cursor:
            calls = calls.filter(cursor.position.newer() if backwards else cursor.position.older())
        shown = calls.order_by(*order).values(*_COLUMNS, args_preview=Start(ToolCall, "args", PREVIEW_CHARS))
        return list(shown[: page_size + 1])

    rows = list(nearest(wanted, take, at=at, newer=backwards, limit=page_size + 1))
    more = len(rows) > page_size
    rows = rows[:page_size]
    if backwards:
        rows.reverse()
    return CallPage(
        rows=_with_marks(rows),
        next=_cursor(rows[-1:], backwards=False) if more or backwards else None,
        previous=_cursor(rows[:1], backwards=True) if (more if backwards else cursor) else None,
    )


def rows_of(ids: Sequence[int]) -> list[CallRow]:
    """The rows of some calls, newest first. Four queries."""
    shown = ToolCall.objects.filter(pk__in=list(ids)).order_by("-started_at", "-id")
    return _with_marks(list(shown.values(*_COLUMNS, args_preview=Start(ToolCall, "args", PREVIEW_CHARS))))


def _cursor(edge: list[dict[str, Any]], *, backwards: bool) -> str | None:
    return next(
        (str(Cursor(position=Position(at=row["started_at"], id=row["id"]), backwards=backwards)) for row in edge),
        None,
    )


def _with_marks(rows: list[dict[str, Any]]) -> list[CallRow]:
    """The rows with their labels, hints and tags."""
    ids = [row["id"] for row in rows]
    columns = ("call_id", "label", "num_labels", "archived_at")
    reviews: dict[Any, Any] = {row["call_id"]: row for row in Review.objects.filter(call_id__in=ids).values(*columns)}
    hints, tags = hints_of_calls(ids), tags_of_calls(ids)
    found = []
    for row in rows:
        review = reviews.get(row["id"], {"label": None, "num_labels": 0, "archived_at": None})
        found.append(
            CallRow(
                **row,
                label=review["label"],
                num_labels=review["num_labels"],
                hints=tuple(hints.get(row["id"], ())),
                tags=tuple(tags.get(row["id"], ())),
                is_archived=review["archived_at"] is not None,
            )
        )
    return found


def tags_of_calls(ids: Iterable[int]) -> dict[int, list[str]]:
    """The tags of calls, by id, in the order of the alphabet."""
    found: dict[int, list[str]] = {}
    rows = ItemTag.objects.filter(call_id__in=list(ids)).order_by("tag")
    for call_id, tag in rows.values_list("call_id", "tag"):
        found.setdefault(call_id, []).append(tag)
    return found


def hints_of_calls(ids: Iterable[int]) -> dict[int, list[HintRow]]:
    """The hints of calls, by id, in the order of the rules."""
    order = list(BY_NAME)
    found: dict[int, list[HintRow]] = {}
    columns = ("call_id", "rule", "cycle", "path", "sentence")
    rows = Hint.objects.filter(call_id__in=list(ids), rule__in=order).values_list(*columns)
    for call_id, rule, cycle, path, sentence in sorted(rows, key=lambda row: (order.index(row[1]), row[3])):
        found.setdefault(call_id, []).append(HintRow(rule=rule, cycle=cycle, path=path, sentence=sentence))
    return found


def count(wanted: CallFilter) -> int:
    """How many calls match; COUNT_CAP + 1 stands for "more than COUNT_CAP". An exact total would read them all."""
    if wanted.hints and wanted == CallFilter(hints=wanted.hints, viewer=wanted.viewer):
        rules = list(BY_NAME) if ANY_HINT in wanted.hints else list(wanted.hints)
        kept = archived_as(is_archived=False, call_id=OuterRef("call_id"))
        hinted = Hint.objects.filter(kept, rule__in=rules, call__isnull=False).order_by()
        return hinted.values("call_id").distinct()[: COUNT_CAP + 1].count()
    return matching(wanted).order_by().values("pk")[: COUNT_CAP + 1].count()


def hint_counts() -> dict[str, int]:
    """How many calls outside the archive have a hint, by rule; HINT_CAP + 1 stands for more. One query, on indexes
    alone; the order lets it stop at the cap."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.name, (SELECT count(*) FROM (SELECT DISTINCT h.started_at, h.call_id "
            "FROM agent_tool_call_hints h WHERE h.tenant_id = %(tenant)s AND h.rule = r.name AND h.call_id IS NOT NULL "
            "AND NOT EXISTS (SELECT 1 FROM agent_tool_call_reviews a WHERE a.tenant_id = %(tenant)s "
            "AND a.call_id = h.call_id AND a.archived_at IS NOT NULL) "
            "ORDER BY h.started_at DESC, h.call_id DESC LIMIT %(cap)s) c) FROM unnest(%(rules)s::text[]) r(name)",
            {"tenant": current_tenant_id(), "rules": list(BY_NAME), "cap": HINT_CAP + 1},
        )
        return dict(cursor.fetchall())


def tag_names() -> list[str]:
    """All tags that any item has, by name."""
    return distinct("tag", ItemTag)


def tool_names() -> list[str]:
    """Names of all tools that were ever called, by name."""
    return distinct("tool_name")


def sources() -> list[str]:
    """All sources that calls came from, by name."""
    return distinct("source")


def distinct(column: str, model: type[Model] = ToolCall) -> list[str]:
    """Values of a column that follows the tenant in an index: one index probe a value, not a walk over all rows."""
    table, name = connection.ops.quote_name(model._meta.db_table), connection.ops.quote_name(column)
    step = f"SELECT min({name}) FROM {table} WHERE tenant_id = %(tenant)s"  # noqa: S608  (names of ours, no input)
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE seen(value) AS (({step}) UNION ALL "  # noqa: S608
            f"SELECT ({step} AND {name} > seen.value) FROM seen WHERE seen.value IS NOT NULL) "
            "SELECT value FROM seen WHERE value IS NOT NULL",
            {"tenant": current_tenant_id()},
        )
        return [value for (value,) in cursor.fetchall()]
