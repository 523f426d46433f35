"""Engine records as rows, and back. Pure: no query is made here."""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.messages import BrokenCall, Reply, ToolCall
from engine.providers.protocol import Exchange, Usage
from engine.records import (
    DID_NOT_HAPPEN,
    HAPPENED,
    OPEN,
    Answered,
    Approve,
    CallRecord,
    CallState,
    Cycle,
    Decision,
    Decline,
    FailedReply,
    NotAnswered,
    ReplyRecord,
    Resume,
)
from engine.tools import Mode, Safety, ToolOutcome
from quality import models
from quality.ingest.evidence import args_from_text, result_from_text
from quality.ingest.jsontext import dump, storable
from quality.ingest.records import fingerprint
from quality.models import DecisionKind, ModelReply
from quality.turns.claim import Claim

type Row = dict[str, Any]
type Statement = tuple[str, Row]

INSERT_REPLY = """
INSERT INTO agent_turn_replies (tenant_id, turn_id, cycle, attempt, reply, exchanges, toolset_id, model, finish_reason,
    prompt_tokens, completion_tokens, tokens_estimated, num_bytes, warnings, error_code, error, started_at, duration_ms,
    created_at)
VALUES (%(tenant_id)s, %(turn_id)s, %(cycle)s, %(attempt)s, %(reply)s, %(exchanges)s, %(toolset_id)s, %(model)s,
    %(finish_reason)s, %(prompt_tokens)s, %(completion_tokens)s, %(tokens_estimated)s, %(num_bytes)s, %(warnings)s,
    %(error_code)s, %(error)s, %(started_at)s, %(duration_ms)s, now())
ON CONFLICT DO NOTHING
"""

# The engine records changes only, so each record of an open call is a new opening, which wants a decision of its own.
UPSERT_CALL = """
INSERT INTO agent_tool_calls AS c (tenant_id, turn_id, cycle, index, tool_call_id, tool_name, args, args_run, result,
    shown, details, is_error, error, state, mode, safety, opening, started_at, time_recorded, duration_ms, source,
    external_id, content_sha256, conversation_id, contact_id, message_id, outbound_message_id, model, provider,
    style_id, prompt_version, toolset_id, warnings, created_at)
VALUES (%(tenant_id)s, %(turn_id)s, %(cycle)s, %(index)s, %(tool_call_id)s, %(tool_name)s, %(args)s, %(args_run)s,
    %(result)s, %(shown)s, %(details)s, %(is_error)s, %(error)s, %(state)s, %(mode)s, %(safety)s, %(opening)s,
    %(started_at)s, true, %(duration_ms)s, %(source)s, %(external_id)s, %(content_sha256)s, %(conversation_id)s,
    %(contact_id)s, %(message_id)s, '', %(model)s, %(provider)s, %(style_id)s, %(prompt_version)s, %(toolset_id)s,
    %(warnings)s, now())
ON CONFLICT (tenant_id, turn_id, cycle, index) DO UPDATE SET
    args_run = excluded.args_run, result = excluded.result, shown = excluded.shown, details = excluded.details,
    is_error = excluded.is_error, error = excluded.error, state = excluded.state,
    opening = c.opening + excluded.opening, duration_ms = coalesce(excluded.duration_ms, c.duration_ms)
"""

# A turn whose open calls were all decided while it ran goes on at once.
PARK = """
UPDATE agent_turn_runs r SET attempt = 0, lease_token = NULL, lease_until = NULL, queued_at = now(),
    state = CASE WHEN EXISTS (
        SELECT FROM agent_tool_calls c WHERE c.tenant_id = r.tenant_id AND c.turn_id = r.turn_id
        AND c.state IN ('pending', 'unknown') AND NOT EXISTS (
            SELECT FROM agent_tool_call_decisions d
            WHERE d.tenant_id = c.tenant_id AND d.call_id = c.id AND d.opening = c.opening)
    ) THEN 'awaiting' ELSE 'queued' END
WHERE r.tenant_id = %(tenant_id)s AND r.turn_id = %(turn_id)s
"""

FINISH = """
UPDATE agent_turn_runs SET state = %(state)s, error = %(error)s, lease_token = NULL, lease_until = NULL,
    finished_at = now() WHERE tenant_id = %(tenant_id)s AND turn_id = %(turn_id)s
"""

SAVE_TURN = """
UPDATE agent_turns t SET state = r.state, end_reason = %(end_reason)s, messages = %(messages)s, system = %(system)s,
    num_calls = %(num_calls)s, num_cycles = %(num_cycles)s, warnings = %(warnings)s, model = %(model)s,
    provider = %(provider)s, style_id = %(style_id)s, prompt_version = %(prompt_version)s,
    toolset_id = coalesce(%(toolset_id)s, t.toolset_id), outbound_message_id = %(outbound_message_id)s,
    duration_ms = extract(epoch FROM clock_timestamp() - t.started_at) * 1000, hints_version = 0
FROM agent_turn_runs r
WHERE t.tenant_id = %(tenant_id)s AND t.id = %(turn_id)s AND r.tenant_id = t.tenant_id AND r.turn_id = t.id
"""

NAME_REPLY = """
UPDATE agent_tool_calls SET outbound_message_id = %(outbound_message_id)s
WHERE tenant_id = %(tenant_id)s AND turn_id = %(turn_id)s
"""

# Nobody will run or answer what an ended turn left open; what was sent and not heard of stays unknown.
CLOSE_CALLS = """
UPDATE agent_tool_calls SET state = CASE WHEN state = 'running' AND safety = 'unsafe' THEN 'unknown' ELSE 'error' END,
    is_error = CASE WHEN state = 'running' AND safety = 'unsafe' THEN NULL ELSE true END,
    error = CASE WHEN state = 'running' AND safety = 'unsafe' THEN NULL ELSE %(end_reason)s END
WHERE tenant_id = %(tenant_id)s AND turn_id = %(turn_id)s AND state IN ('running', 'pending')
"""

ORDER = (INSERT_REPLY, UPSERT_CALL, PARK, FINISH, SAVE_TURN, NAME_REPLY, CLOSE_CALLS)


@dataclass(frozen=True, slots=True)
class Origin:
    """What calls repeat from their turn."""

    source: str
    external_id: str
    conversation_id: str
    contact_id: str
    message_id: str
    provider: str
    style_id: str
    prompt_version: str


def reply_row(claim: Claim, record: ReplyRecord, toolset_id: int | None) -> Row:
    return {
        "tenant_id": claim.tenant_id,
        "turn_id": claim.turn_id,
        "cycle": record.cycle,
        "attempt": claim.attempt,
        "reply": dump(reply_as_json(record.reply)),
        "exchanges": dump([_exchange(exchange) for exchange in record.exchanges]),
        "toolset_id": toolset_id,
        "model": storable(record.model),
        "finish_reason": None if record.finish_reason is None else storable(record.finish_reason),
        "prompt_tokens": record.usage.prompt_tokens,
        "completion_tokens": record.usage.completion_tokens,
        "tokens_estimated": record.usage.estimated,
        "num_bytes": record.num_bytes,
        "warnings": [storable(warning) for warning in record.warnings],
        "error_code": "",
        "error": "",
        "started_at": record.started_at,
        "duration_ms": record.duration_ms,
    }


def failure_row(claim: Claim, failure: FailedReply) -> Row:
    first = failure.exchanges[0] if failure.exchanges else None
    return {
        "tenant_id": claim.tenant_id,
        "turn_id": claim.turn_id,
        "cycle": failure.cycle,
        "attempt": claim.attempt,
        "reply": None,
        "exchanges": dump([_exchange(exchange) for exchange in failure.exchanges]),
        "toolset_id": None,
        "model": "",
        "finish_reason": None,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "tokens_estimated": False,
        "num_bytes": 0,
        "warnings": [],
        "error_code": failure.code,
        "error": storable(failure.message),
        "started_at": first.started_at if first else None,
        "duration_ms": sum(exchange.duration_ms for exchange in failure.exchanges),
    }


def call_row(claim: Claim, call: CallRecord, origin: Origin, model: str, toolset_id: int | None) -> Row:
    args, warnings = args_from_text(call.raw_arguments)
    edited = None if call.arguments is None else _edited(call.raw_arguments, call.arguments)
    external_id = f"{origin.external_id}/{call.cycle}/{call.index}"
    return {
        "tenant_id": claim.tenant_id,
        "turn_id": claim.turn_id,
        "cycle": call.cycle,
        "index": call.index,
        "tool_call_id": storable(call.call_id),
        "tool_name": storable(call.name),
        "args": args,
        "args_run": edited,
        "state": call.state.value,
        "mode": call.mode.value,
        "safety": call.safety.value,
        "opening": 1 if call.state in OPEN else 0,
        "started_at": call.started_at or dt.datetime.now(dt.UTC),
        "duration_ms": call.duration_ms,
        "source": origin.source,
        "external_id": external_id,
        "content_sha256": bytes.fromhex(fingerprint(external_id, call.name, args)),
        "conversation_id": origin.conversation_id,
        "contact_id": origin.contact_id,
        "message_id": origin.message_id,
        "model": model,
        "provider": origin.provider,
        "style_id": origin.style_id,
        "prompt_version": origin.prompt_version,
        "toolset_id": toolset_id,
        "warnings": list(warnings),
        **_outcome_columns(call.outcome),
    }


def _outcome_columns(outcome: ToolOutcome | None) -> Row:
    if outcome is None:
        return dict.fromkeys(("result", "shown", "details", "is_error", "error"))
    result, _ = result_from_text(outcome.result)
    shown = dump(outcome.text)
    details: dict[str, Any] = dict(outcome.details)
    if outcome.encoding != "text":
        details |= {"encoding": outcome.encoding}
    if outcome.charset:
        details |= {"charset": outcome.charset}
    return {
        "result": result,
        "shown": None if whole_result(result) == outcome.text else shown,
        "details": dump(details) if details else None,
        "is_error": outcome.is_error,
        "error": None if outcome.error is None else storable(outcome.error),
    }


def _edited(raw: str, arguments: Mapping[str, Any]) -> str | None:
    """The arguments that ran, where they are not those that the model wrote."""
    try:
        same = json.loads(raw) == arguments
    except (ValueError, RecursionError):
        same = False
    return None if same else dump(arguments)


def whole_result(result: str) -> str:
    """The text of a result from its evidence: objects and arrays are kept as they were spelled, text as a string."""
    return result if result[:1] in ("{", "[") else str(json.loads(result))


def reply_as_json(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "warnings": list(reply.warnings),
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "rawArguments": call.raw_arguments}
            for call in reply.calls
        ],
        "broken": [
            {"id": call.id, "name": call.name, "rawArguments": call.raw_arguments, "reason": call.reason}
            for call in reply.broken
        ],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "streamed": exchange.streamed,
        "changed": dict(exchange.changed),
        "startedAt": exchange.started_at.isoformat(),
        "durationMs": exchange.duration_ms,
        "status": exchange.status,
        "body": exchange.body,
        "fault": exchange.fault,
    }


# --- and back ---------------------------------------------------------------------------------------------------------
def resume_from(
    replies: Iterable[ModelReply],
    calls: Iterable[models.ToolCall],
    decisions: Iterable[models.CallDecision],
    key: str,
) -> Resume:
    """The turn as recorded so far. A decision counts for the opening it was made for, and only while that lasts: once
    the call was begun anew, it has had its effect."""
    made = {(decision.call_id, decision.opening): decision for decision in decisions}
    by_cycle: dict[int, dict[int, CallRecord]] = {}
    decided: dict[str, Decision] = {}
    kept = {reply.cycle: reply_from(reply) for reply in replies if not reply.error_code}
    for row in calls:
        record = _call_from(row, kept[row.cycle].reply, key)
        by_cycle.setdefault(row.cycle, {})[row.index] = record
        decision = made.get((row.pk, row.opening))
        if record.state in OPEN and decision is not None:
            decided[record.call_id] = decision_from(decision)
    return Resume([Cycle(kept[cycle], by_cycle.get(cycle, {})) for cycle in sorted(kept)], decided)


def reply_from(row: ModelReply) -> ReplyRecord:
    told = json.loads(row.reply or "{}")
    reply = Reply(
        calls=tuple(
            ToolCall(call["id"], call["name"], call["arguments"], call["rawArguments"]) for call in told["calls"]
        ),
        text=told["text"],
        reasoning=told["reasoning"],
        warnings=tuple(told["warnings"]),
        broken=tuple(
            BrokenCall(call["id"], call["name"], call["rawArguments"], call["reason"]) for call in told["broken"]
        ),
    )
    return ReplyRecord(
        cycle=row.cycle,
        reply=reply,
        offered=tuple(json.loads(row.toolset.tools)) if row.toolset else (),
        finish_reason=row.finish_reason,
        usage=Usage(row.prompt_tokens, row.completion_tokens, row.tokens_estimated),
        num_bytes=row.num_bytes,
        model=row.model,
        warnings=tuple(row.warnings),
        started_at=row.started_at,
        duration_ms=row.duration_ms,
    )


def _call_from(row: models.ToolCall, reply: Reply, key: str) -> CallRecord:
    every: tuple[ToolCall | BrokenCall, ...] = (*reply.calls, *reply.broken)
    asked = every[row.index]
    arguments = asked.arguments if isinstance(asked, ToolCall) else None
    return CallRecord(
        cycle=row.cycle,
        index=row.index,
        call_id=asked.id,
        name=asked.name,
        raw_arguments=asked.raw_arguments,
        arguments=arguments if row.args_run is None else json.loads(row.args_run),
        state=CallState(row.state),
        mode=Mode(row.mode or Mode.AUTO),
        safety=Safety(row.safety or Safety.UNSAFE),
        idempotency_key=f"{key}:{row.cycle}:{row.index}",
        outcome=_outcome_from(row),
        started_at=row.started_at,
        duration_ms=row.duration_ms,
    )


def _outcome_from(row: models.ToolCall) -> ToolOutcome | None:
    if row.result is None or row.is_error is None:
        return None
    whole = whole_result(row.result)
    return ToolOutcome(
        text=whole if row.shown is None else json.loads(row.shown),
        result=whole,
        is_error=row.is_error,
        error=row.error,
        details=json.loads(row.details) if row.details else {},
    )


def decision_from(row: models.CallDecision) -> Decision:  # noqa: PLR0911  (a line a kind)
    text = json.loads(row.text) if row.text else ""
    match DecisionKind(row.kind):
        case DecisionKind.APPROVE:
            return Approve(None if row.arguments is None else json.loads(row.arguments))
        case DecisionKind.RUN_AGAIN:
            return Approve()
        case DecisionKind.DECLINE:
            return Decline(text)
        case DecisionKind.ANSWER:
            return Answered(text, row.is_error)
        case DecisionKind.HAPPENED:
            return Answered(text) if text else HAPPENED
        case DecisionKind.DID_NOT_HAPPEN:
            return DID_NOT_HAPPEN
        case DecisionKind.NOT_ANSWERED:
            return NotAnswered()
