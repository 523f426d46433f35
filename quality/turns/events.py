"""Live events of turns: how they are kept, and read by those who watch.

An event is a row with a number that has no gaps within its turn. NOTIFY carries `turn:number` alone: whoever hears it
reads the rows in the tenant's scope. Rows live for an hour; of an older turn the end is told from the turn itself.
"""

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, connections
from django.utils import timezone

from engine.events import AssistantEnd
from quality.ingest.jsontext import dump
from quality.models import ENDED, ToolCall, Turn, TurnEvent, TurnRun, TurnState
from quality.turns.rows import whole_result
from tenants.masking import reading
from tenants.scope import current_tenant_id, tenant_scope

CHANNEL = "turn_events"
LIFE = dt.timedelta(hours=1)
END = "assistant_end"
DELTA = "assistant_delta"

_BATCH = 500
_WITHHELD = '{"type":"assistant_delta","text":""}'
_DELETED_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Told:
    """One event as it goes out; `data` is JSON text."""

    seq: int
    data: str

    @property
    def type(self) -> str:
        return str(json.loads(self.data)["type"])


def append(turn_id: int, events: Sequence[str]) -> None:
    """Add events of a turn whose run this transaction has locked, in the open scope."""
    tenant_id = current_tenant_id()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agent_turn_runs SET last_seq = last_seq + %s WHERE tenant_id = %s AND turn_id = %s "
            "RETURNING last_seq",
            [len(events), tenant_id, turn_id],
        )
        (last_seq,) = cursor.fetchone()
    insert(tenant_id, [(turn_id, seq, data) for seq, data in enumerate(events, last_seq - len(events) + 1)])


def insert(tenant_id: int, rows: Sequence[tuple[int, int, str]]) -> None:
    """Events as (turn, number, data), oldest first, under numbers that were drawn before; rings for who watches."""
    if not rows:
        return
    newest = {turn_id: seq for turn_id, seq, _ in rows}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO turn_events (tenant_id, turn_id, seq, data, created_at) "
            "SELECT %s, v.*, now() FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS v",
            [tenant_id, *map(list, zip(*rows, strict=True))],
        )
        cursor.execute(
            "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload",
            [CHANNEL, [f"{turn_id}:{seq}" for turn_id, seq in newest.items()]],
        )


def read(turn_id: int, after: int) -> list[Told]:
    """Events after the number `after`, oldest first, in the open scope. When the turn has ended and its events are
    deleted, what they would have led to: its calls and its end, under the number of its last event."""
    if told := _kept(turn_id, after):
        return told
    run = TurnRun.objects.select_related("turn").filter(turn=turn_id, state__in=ENDED).first()
    if run is None or after >= max(run.last_seq, 1):
        return []
    if told := _kept(turn_id, after):  # it ended between the two looks: nothing was deleted
        return told
    return [Told(max(run.last_seq, 1), data) for data in _remembered(run)]


def _kept(turn_id: int, after: int) -> list[Told]:
    rows = TurnEvent.objects.filter(turn=turn_id, seq__gt=after).order_by("seq").values_list("seq", "data")[:_BATCH]
    told = [Told(seq, data) for seq, data in rows]
    if reading.current() is None:
        return told
    # What has to be masked may come in two pieces, neither of which shows it. The whole text comes with the end.
    return [one if one.type != DELTA else Told(one.seq, _WITHHELD) for one in told]


def _remembered(run: TurnRun) -> Iterable[str]:
    for call in ToolCall.objects.filter(turn=run.turn_id).order_by("cycle", "index"):
        yield dump(call_event(call))
    yield dump(AssistantEnd(reply_of(run.turn), run.turn.end_reason == "exhausted", run.turn.end_reason).as_dict())


def call_event(call: ToolCall) -> dict[str, Any]:
    """A recorded call as the event of its present state."""
    event: dict[str, Any] = {
        "type": "tool_call",
        "state": call.state,
        "cycle": call.cycle,
        "index": call.index,
        "callId": call.tool_call_id,
        "name": call.tool_name,
        "arguments": json.loads(call.args_run or call.args or "null"),
        "rawArguments": call.args,
    }
    if call.result is not None:
        text = whole_result(call.result) if call.shown is None else json.loads(call.shown)
        event |= {"result": text, "isError": call.is_error, "error": call.error}
    return event


def reply_of(turn: Turn) -> str | None:
    """The reply of a turn that has one: the text of its last message."""
    if turn.state != TurnState.DONE or not turn.messages:
        return None
    last = json.loads(turn.messages)[-1]
    return last.get("content") or None if last.get("role") == "assistant" and not last.get("tool_calls") else None


def delete_old() -> int:
    """Delete events older than an hour, tenant by tenant; how many they were."""
    limit, num_deleted = timezone.now() - LIFE, 0
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT DISTINCT tenant_id FROM turn_events WHERE created_at < %s", [limit])
        tenants = [tenant_id for (tenant_id,) in cursor.fetchall()]
    for tenant_id in tenants:
        with tenant_scope(tenant_id):
            old = TurnEvent.objects.filter(created_at__lt=limit).values("pk")[:_DELETED_AT_ONCE]
            num_deleted += TurnEvent.objects.filter(pk__in=old).delete()[0]
    return num_deleted


def sse(told: Told) -> bytes:
    """One event in the form of an event stream. JSON text has no line breaks of its own."""
    return f"id: {told.seq}\nevent: {told.type}\ndata: {told.data}\n\n".encode()
