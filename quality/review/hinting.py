"""Makes hints of turns, and makes them again: behind whatever stored or changed a turn, never in its way.

A turn whose `hints_version` is 0 waits. Who changes a turn or its calls sets it back to 0, without a condition: so of a
change and a reading at the same time, the change comes last. Batches go in the order of ids, one worker a tenant.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

from django.core.cache import cache
from django.db import connection, connections, transaction
from django.db.models import Q
from django.db.models.functions import Coalesce, Greatest, Left, Length, Right

from quality.cases.toolset import Toolset as OfferedTools
from quality.models import ENDED, Hint, ToolCall, Toolset, Turn, TurnState
from quality.review import hints
from quality.review.conversation import read_conversation
from quality.review.figures import Known
from quality.review.hints import Remark, SeenCall, SeenTurn, Usual
from quality.review.jsonview import string_start
from quality.review.queues import filling
from tenants.models import Tenant
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

BATCH_TURNS = 100
BATCH_CALLS = 500
MAX_CALLS = 2_000  # of one turn that are looked at
MAX_CHARS = 64 * 1024  # of arguments or a result that are read
MAX_MESSAGES_CHARS = 512 * 1024
MAX_BEFORE = 30  # earlier turns of a conversation that a reply may rest on
SAMPLES, WINDOW = 100, 300  # durations that one is compared with, out of the tool's latest calls
WAKE_S = 1.0
STEP = 20_000  # turns that one sweep looks at for hints of older rules
SWEPT_S = 24 * 3600

_LOCK: Final = 1_768_843_622
_SWEPT: Final = "hints:swept"
_woken: dict[int, float] = {}


# --- when -------------------------------------------------------------------------------------------------------------
def wake(tenant: Tenant | int) -> None:
    """Once what was stored is committed, say that turns wait: at most once a second, and nobody waits for it. What is
    not said, the sweep finds."""
    tenant_id = tenant if isinstance(tenant, int) else tenant.pk
    transaction.on_commit(lambda: _publish(tenant_id))


def _publish(tenant_id: int) -> None:
    from quality.tasks import make_hints, publish_aside

    now = time.monotonic()
    if now - _woken.get(tenant_id, -WAKE_S) >= WAKE_S:
        _woken[tenant_id] = now
        publish_aside(make_hints, tenant_id)


def waiting() -> list[int]:
    """Ids of tenants with turns that wait: one probe of an index each. Asks as the `janitor`."""
    step = "SELECT min(t.tenant_id) FROM agent_turns t WHERE t.hints_version = 0"
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE seen(tenant_id) AS (({step}) UNION ALL "  # noqa: S608  (no input)
            f"SELECT ({step} AND t.tenant_id > seen.tenant_id) FROM seen WHERE seen.tenant_id IS NOT NULL) "
            "SELECT tenant_id FROM seen WHERE tenant_id IS NOT NULL"
        )
        return [tenant_id for (tenant_id,) in cursor.fetchall()]


def sweep_outdated() -> int:
    """Let turns wait again whose hints older rules made: a step of all turns at a time, the next one with the next
    call. The number set back. Once through, it begins again a day later."""
    begin = cache.get(_SWEPT)
    version, after = begin if isinstance(begin, tuple) else (hints.VERSION, 0)
    if version != hints.VERSION:
        after = 0
    if after is None:
        return 0
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            "SELECT max(id) FROM (SELECT id FROM agent_turns WHERE id > %s ORDER BY id LIMIT %s) s", [after, STEP]
        )
        ((last,),) = cursor.fetchall()
        cursor.execute(
            "SELECT tenant_id, array_agg(id) FROM agent_turns "
            "WHERE id > %s AND id <= %s AND hints_version > 0 AND hints_version < %s GROUP BY tenant_id",
            [after, last or after, hints.VERSION],
        )
        outdated: list[tuple[int, list[int]]] = cursor.fetchall()
    for tenant_id, ids in outdated:
        with tenant_scope(tenant_id):
            forget(ids)
    cache.set(_SWEPT, (hints.VERSION, last), timeout=SWEPT_S)
    return sum(len(ids) for _, ids in outdated)


def forget(turn_ids: Iterable[int]) -> None:
    """Let these turns wait, as after a change. In the open scope."""
    Turn.objects.filter(pk__in=list(turn_ids)).update(hints_version=0)


# --- making -----------------------------------------------------------------------------------------------------------
def make(tenant: Tenant | int, *, seconds: float = 60.0) -> bool:
    """Make the hints of turns that wait, batch after batch; True if some are left when the time is over. While another
    worker is at this tenant's, nothing is done. Opens the tenant's scope."""
    deadline = time.monotonic() + seconds
    while True:
        with tenant_scope(tenant):
            if not _make_batch():
                return False
        if time.monotonic() > deadline:
            return True


def _make_batch() -> int:
    """One batch in one short transaction; the number of its turns."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [_LOCK, current_tenant_id() % 2**31])
        if not cursor.fetchone()[0]:
            return 0
    rows = Turn.objects.filter(hints_version=0).order_by("pk").select_for_update(skip_locked=True, no_key=True)
    ids: list[int] = []
    num_calls = 0
    for pk, calls in rows.values_list("pk", "num_calls")[:BATCH_TURNS]:
        if ids and num_calls + calls > BATCH_CALLS:
            break
        ids.append(pk)
        num_calls += calls
    if ids:
        _write(ids, _read(ids))
        Turn.objects.filter(pk__in=ids).update(hints_version=hints.VERSION)
        filling.fill(ids)
        with connection.cursor() as cursor:
            cursor.execute(_FORGET_LATER, {"tenant": current_tenant_id(), "ids": ids})
    return len(ids)


_FORGET_LATER: Final = """
UPDATE agent_turns later SET hints_version = 0 FROM agent_turns t
WHERE t.tenant_id = %(tenant)s AND t.id = ANY(%(ids)s) AND t.conversation_id <> ''
    AND later.tenant_id = t.tenant_id AND later.conversation_id = t.conversation_id AND later.hints_version > 0
    AND (later.started_at, later.position) > (t.started_at, t.position) AND later.id <> ALL(%(ids)s)
    AND EXISTS (SELECT FROM agent_tool_call_hints h
        WHERE h.tenant_id = later.tenant_id AND h.turn_id = later.id AND h.rule = 'contradicts_result')
"""  # a later reply may rest on what has come in since


@dataclass(frozen=True, slots=True)
class _Read:
    """A turn to be looked at; `seen` is None while it has not ended: there is nothing to say of it yet."""

    pk: int
    started_at: dt.datetime
    call_times: Mapping[int, dt.datetime]
    seen: SeenTurn | None


def _read(ids: Sequence[int]) -> list[_Read]:
    columns = ("pk", "state", "end_reason", "started_at", "position", "conversation_id", "toolset_id")
    rows = Turn.objects.filter(pk__in=ids).values(*columns, messages_start=Left("messages", MAX_MESSAGES_CHARS))
    turns = [dict(row) for row in rows.order_by("pk")]
    calls = _calls([turn["pk"] for turn in turns if turn["state"] in ENDED])
    offered = {turn["toolset_id"] for turn in turns} | {call["toolset_id"] for each in calls.values() for call in each}
    texts = dict(Toolset.objects.filter(pk__in=offered - {None}).values_list("pk", "tools"))
    usual = _usual([call["pk"] for each in calls.values() for call in each])
    return [_turn(turn, calls.get(turn["pk"], []), texts, usual) for turn in turns]


def _calls(turn_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    columns = ("pk", "turn_id", "cycle", "index", "tool_name", "is_error", "error", "mode", "duration_ms", "warnings",
               "toolset_id", "started_at")  # fmt: skip
    rows = ToolCall.objects.filter(turn_id__in=turn_ids).order_by("turn_id", "cycle", "index")
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows.values(
        *columns,
        args_start=Left("args", MAX_CHARS),
        result_start=Left("result", MAX_CHARS),
        result_end=Right("result", 200),
        shown_start=Left("shown", MAX_CHARS),
        longest=Greatest(Coalesce(Length("args"), 0), Coalesce(Length("result"), 0)),
    )[:MAX_CALLS]:
        found.setdefault(row["turn_id"], []).append(dict(row))
    return found


def _turn(
    turn: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], texts: Mapping[int, str], usual: Mapping[int, Usual]
) -> _Read:
    times = {call["pk"]: call["started_at"] for call in calls}
    if turn["state"] not in ENDED:
        return _Read(turn["pk"], turn["started_at"], times, None)
    conversation = read_conversation(turn["messages_start"], max_text=MAX_CHARS)
    seen = SeenTurn(
        calls=tuple(_call(call, texts.get(call["toolset_id"] or turn["toolset_id"], ""), usual) for call in calls),
        said=tuple(conversation.messages),
        is_whole=conversation.complete,
        is_done=turn["state"] == TurnState.DONE,
        end_reason=turn["end_reason"],
        tools=OfferedTools.read(texts.get(turn["toolset_id"], "")),
    )
    known = partial(_known, seen, turn["started_at"], texts.get(turn["toolset_id"], ""))
    seen = replace(seen, known=known, add_before=partial(_add_before, turn))
    return _Read(turn["pk"], turn["started_at"], times, seen)


def _call(call: Mapping[str, Any], tools: str, usual: Mapping[int, Usual]) -> SeenCall:
    return SeenCall(
        id=call["pk"],
        cycle=call["cycle"],
        index=call["index"],
        tool_name=call["tool_name"],
        args=call["args_start"],
        result=call["result_start"],
        result_end=call["result_end"] or "",
        is_whole=call["longest"] <= MAX_CHARS,
        is_error=call["is_error"],
        error=call["error"],
        is_ours=call["mode"] is not None,
        shown=None if call["shown_start"] is None else string_start(call["shown_start"]),
        duration_ms=call["duration_ms"],
        usual=usual.get(call["pk"]),
        warnings=tuple(call["warnings"]),
        tools=OfferedTools.read(tools),
    )


_USUAL: Final = """
SELECT c.id, s.took FROM agent_tool_calls c CROSS JOIN LATERAL (
    SELECT array_agg(w.duration_ms) AS took FROM (
        SELECT l.duration_ms FROM (
            SELECT p.duration_ms, p.is_error FROM agent_tool_calls p
            WHERE p.tenant_id = c.tenant_id AND p.tool_name = c.tool_name AND p.started_at <= c.started_at
                AND (p.started_at < c.started_at OR p.id < c.id)
            ORDER BY p.started_at DESC, p.id DESC LIMIT %(window)s) l
        WHERE l.duration_ms IS NOT NULL AND l.is_error IS NOT TRUE LIMIT %(samples)s) w) s
WHERE c.tenant_id = %(tenant)s AND c.id = ANY(%(ids)s) AND c.duration_ms >= %(least)s
"""


def _usual(call_ids: Sequence[int]) -> dict[int, Usual]:
    """What each call that took long is compared with: the calls of its tool before it, so that those which come later
    change nothing."""
    bounds = {"least": hints.MIN_SLOW_MS, "window": WINDOW, "samples": SAMPLES}
    with connection.cursor() as cursor:
        cursor.execute(_USUAL, {"tenant": current_tenant_id(), "ids": list(call_ids), **bounds})
        rows = [(pk, took) for pk, took in cursor.fetchall() if took]
    found = {}
    for pk, took in rows:
        middle = median(took)
        found[pk] = Usual(num_calls=len(took), median=middle, spread=median(abs(one - middle) for one in took))
    return found


def _known(seen: SeenTurn, started_at: dt.datetime, tools: str) -> Known | None:
    """What the last reply can have its figures from: the turn before it, and the tools. None if it is too much."""
    known = Known()
    known.add_day(started_at.date(), around=1)
    known.add_text(tools)
    for call in seen.calls:
        if not call.is_whole:
            return None
        for text in (call.args, call.result):
            known.add_json(text or "null", is_base=True)
    for message in seen.said[:-1]:
        if message.hidden:
            return None
        known.add_json(message.text, is_base=message.role == "user")
        for asked in message.calls:
            known.add_json(asked.args)
    return known


def _add_before(turn: Mapping[str, Any], known: Known) -> bool:
    """Add the prompt and what was said before the turn; False if not all of it is recorded, or it is too much."""
    sizes = {"system_size": Length("system"), "history_size": Length("history")}
    starts = {"system_start": Left("system", MAX_CHARS), "history_start": Left("history", MAX_MESSAGES_CHARS)}
    row: Any = Turn.objects.filter(pk=turn["pk"]).values(**sizes, **starts).get()
    if (row["system_size"] or 0) > MAX_CHARS or (row["history_size"] or 0) > MAX_MESSAGES_CHARS:
        return False
    known.add_json(row["system_start"] or "null")
    if row["history_start"] is not None:
        known.add_json(row["history_start"])
        return True
    if not turn["conversation_id"]:
        return turn["position"] == 0
    same = Q(started_at=turn["started_at"], position__lt=turn["position"])
    before = Turn.objects.filter(Q(started_at__lt=turn["started_at"]) | same, conversation_id=turn["conversation_id"])
    told = list(
        before.order_by("-started_at", "-position").values_list(
            Left("messages", MAX_MESSAGES_CHARS), Length("messages")
        )[: MAX_BEFORE + 1]
    )
    if len(told) > MAX_BEFORE or len(told) < turn["position"]:
        return False
    for text, size in told:
        if text is None or size > MAX_MESSAGES_CHARS:
            return False
        known.add_json(text)
    return True


def _write(ids: Sequence[int], turns: Sequence[_Read]) -> None:
    """Bring the hints of these turns to what the rules say now. What stays is not touched."""
    stored = {
        (hint.turn_id, hint.call_id, hint.cycle, hint.rule, hint.path): hint
        for hint in Hint.objects.filter(turn_id__in=ids)
    }
    added, changed = [], []
    for turn in turns:
        for remark in _remarks(turn):
            call_id = remark.call.id if remark.call else None
            at = turn.started_at if call_id is None else turn.call_times[call_id]
            hint = stored.pop((turn.pk, call_id, remark.cycle, remark.rule, remark.path), None)
            if hint is None:
                fields = {"rule": remark.rule, "path": remark.path, "sentence": remark.sentence, "started_at": at}
                added.append(Hint(turn_id=turn.pk, call_id=call_id, cycle=remark.cycle, **fields))
            elif (hint.sentence, hint.started_at) != (remark.sentence, at):
                hint.sentence, hint.started_at = remark.sentence, at
                changed.append(hint)
    Hint.objects.filter(pk__in=[hint.pk for hint in stored.values()]).delete()
    Hint.objects.bulk_update(changed, ["sentence", "started_at"])
    Hint.objects.bulk_create(added)


def _remarks(turn: _Read) -> list[Remark]:
    """A rule that trips over a turn costs that turn its hints, and nobody else's."""
    if turn.seen is None:
        return []
    try:
        return hints.hints_of(turn.seen)
    except Exception:
        logger.exception("turn %s: its hints could not be made", turn.pk)
        return []
