"""Finding turns: the filter, the pages of a list, the capped count. Needs an open tenant scope."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from quality.calls import COUNT_CAP, PAGE_SIZE, Cursor, Position
from quality.models import ENDED, Channel, Turn, TurnRun, TurnState
from quality.review.conversation import read_conversation
from quality.review.jsonview import string_start
from quality.starts import Start
from quality.turns.create import SOURCE

PREVIEW_CHARS = 600
_CONTENT = re.compile(r'"content":\s*(?=")')


@dataclass(frozen=True, kw_only=True)
class TurnFilter:
    """What a list is narrowed to; empty fields narrow nothing. `channel` and `ours` mean turns that we ran."""

    state: str = ""
    source: str = ""
    channel: str = ""
    ours: bool = False
    style: str = ""
    model: str = ""
    conversation: str = ""
    since: dt.datetime | None = None
    until: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TurnRow:
    """One line of a list. `channel` is empty for turns that others ran."""

    id: int
    state: str
    end_reason: str
    source: str
    channel: str
    asked: str
    style_id: str
    model: str
    conversation_id: str
    num_calls: int
    started_at: dt.datetime
    time_recorded: bool
    duration_ms: int | None

    @property
    def is_live(self) -> bool:
        """Has it not ended? Then its duration is only that of a part."""
        return self.state not in ENDED

    @property
    def state_word(self) -> str:
        return str(TurnState(self.state).label).lower()

    @property
    def channel_word(self) -> str:
        return str(Channel(self.channel).label).lower() if self.channel else ""


@dataclass(frozen=True, kw_only=True)
class TurnPage:
    rows: list[TurnRow]
    next: str | None
    previous: str | None


_COLUMNS = [name for name in TurnRow.__dataclass_fields__ if name not in {"asked", "channel"}]


def matching(wanted: TurnFilter) -> QuerySet[Turn]:
    """The turns that a filter lets through, in no order yet."""
    columns = {
        "state": wanted.state,
        "source": SOURCE if wanted.ours or wanted.channel else wanted.source,
        "style_id": wanted.style,
        "model": wanted.model,
        "conversation_id": wanted.conversation,
        "started_at__gte": wanted.since,
        "started_at__lt": wanted.until,
    }
    turns = Turn.objects.filter(**{column: value for column, value in columns.items() if value})
    if wanted.channel:
        turns = turns.filter(runs__channel=wanted.channel)
    return turns


def find(wanted: TurnFilter, *, cursor: Cursor | None = None, page_size: int = PAGE_SIZE) -> TurnPage:
    """One page of turns, newest first."""
    turns = matching(wanted)
    backwards = cursor is not None and cursor.backwards
    if cursor:
        turns = turns.filter(cursor.position.newer() if backwards else cursor.position.older())
    order = ("started_at", "id") if backwards else ("-started_at", "-id")
    channel = Subquery(TurnRun.objects.filter(turn=OuterRef("pk")).values("channel")[:1])
    found = turns.order_by(*order).values(*_COLUMNS, channel=channel, start=Start(Turn, "messages", PREVIEW_CHARS))
    rows = list(found[: page_size + 1])
    more = len(rows) > page_size
    rows = rows[:page_size]
    if backwards:
        rows.reverse()
    return TurnPage(
        rows=[_row(row) for row in rows],
        next=_cursor(rows[-1:], backwards=False) if more or backwards else None,
        previous=_cursor(rows[:1], backwards=True) if (more if backwards else cursor) else None,
    )


def count(wanted: TurnFilter) -> int:
    """How many turns match; COUNT_CAP + 1 stands for more than COUNT_CAP."""
    return matching(wanted).order_by().values("pk")[: COUNT_CAP + 1].count()


def first_words(messages: str | None) -> str:
    """The beginning of what the user said, of messages that may be cut off anywhere."""
    said = read_conversation(messages).messages
    text = next((one.text for one in said if one.role == "user"), "")
    if not text and not said and (match := _CONTENT.search(messages or "")):
        text = string_start((messages or "")[match.end() :])
    return " ".join(text.split())[:200]


def _row(row: dict[str, Any]) -> TurnRow:
    start, channel = row.pop("start"), row.pop("channel")
    return TurnRow(**row, asked=first_words(start), channel=channel or "")


def _cursor(edge: list[dict[str, Any]], *, backwards: bool) -> str | None:
    position = next((Position(at=row["started_at"], id=row["id"]) for row in edge), None)
    return str(Cursor(position=position, backwards=backwards)) if position else None
