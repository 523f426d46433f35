"""What a case is made of: all that was recorded of a labelled item, and the expectation that its label proposes.

The input is what the model was given for the reply under test: system prompt, history, and the turn's own messages up
to that reply. So a replay's first reply is the one that was labelled, in whatever cycle of its turn it was.
Needs an open tenant scope.
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from quality.cases.propose import Note, expectation_for
from quality.cases.sample import Call
from quality.ingest.jsontext import MAX_BYTES, JsonError, Node, dump, parse
from quality.models import Feedback, Label, Proposal, ToolCall, Toolset, Turn

MAX_HISTORY_TURNS = 50
MAX_DEPTH = 200


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A case that is not saved yet. Evidence is JSON text; `expectation` is None where a label proposes none."""

    label: str
    tool_name: str
    args: str | None
    messages: str
    tools: str | None
    now: dt.datetime | None
    result: str | None
    is_error: bool | None
    error: str | None
    cycle: int
    index: int | None
    stubs: str
    context: str
    expectation: str | None
    notes: tuple[Note, ...]
    behavior: str
    correction: Mapping[str, Any] | None
    beside: tuple[Call, ...]
    call_id: int | None
    feedback_id: int


def draft_from(feedback: Feedback, *, proposal: Proposal | None = None) -> Draft:
    """The case that a label would make."""
    turn = Turn.objects.get(pk=feedback.turn_id)
    calls = list(ToolCall.objects.filter(turn=turn).order_by("cycle", "index"))
    call = next((call for call in calls if call.pk == feedback.call_id), None)
    toolset_id = call.toolset_id if call and call.toolset_id else turn.toolset_id
    tools = Toolset.objects.filter(pk=toolset_id).values_list("tools", flat=True).first() if toolset_id else None
    correction = read_correction(feedback)
    messages, now = _messages(turn, feedback.cycle), _now(turn, call)
    beside = _beside(calls, call)
    seen = {
        "name": call.tool_name if call else "",
        "arguments": call.args if call else None,
        "tools": tools,
        "messages": messages,
        "now": now,
        "beside": [{"name": other.tool_name} for other in beside],
    }
    proposed = expectation_for(feedback.label, correction, seen)
    return Draft(
        label=feedback.label,
        tool_name=call.tool_name if call else "",
        args=call.args if call else None,
        messages=messages,
        tools=tools,
        now=now,
        result=call.result if call else None,
        is_error=call.is_error if call else None,
        error=call.error if call else None,
        cycle=feedback.cycle,
        index=call.index if call else None,
        stubs=_stubs(calls),
        context=context_of(feedback, turn, call, proposal),
        expectation=dump(proposed.expectation) if proposed.expectation else None,
        notes=proposed.notes,
        behavior=_behavior(feedback.label, call.tool_name if call else "", correction),
        correction=correction,
        beside=tuple(Call(other.tool_name, other.args) for other in beside),
        call_id=feedback.call_id,
        feedback_id=feedback.pk,
    )


def read_correction(feedback: Feedback) -> Mapping[str, Any] | None:
    """The reviewer's correction as values."""
    if feedback.correction is None:
        return None
    try:
        value = json.loads(feedback.correction)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def context_of(feedback: Feedback, turn: Turn, call: ToolCall | None, proposal: Proposal | None) -> str:
    """Where a case comes from, as the export says it. Frozen: it outlives what it names."""
    place = call or turn
    return dump(
        {
            "conversationId": place.conversation_id or None,
            "messageId": place.message_id or None,
            "styleId": place.style_id or None,
            "model": place.model or None,
            "source": place.source or None,
            "proposalId": proposal.pk if proposal else None,
            "reviewer": str(feedback.reviewer),
        }
    )


def _now(turn: Turn, call: ToolCall | None) -> dt.datetime | None:
    """The case's own present; None where the source gave no time, since ours is that of the import."""
    place = call or turn
    return place.started_at if place.time_recorded else None


def _messages(turn: Turn, cycle: int) -> str:
    """What the model was given for this reply, each message as it is spelled."""
    given = [f'{{"role":"system","content":{turn.system}}}'] if turn.system else []
    given += [node.text for node in _history(turn)]
    given += [node.text for node in _before_reply(_elements(turn.messages), cycle)]
    return f"[{','.join(given)}]"


def _history(turn: Turn) -> Iterator[Node]:
    """What was said before the turn: as its caller gave it, or the conversation's earlier turns."""
    if turn.history is not None:
        yield from _elements(turn.history)
        return
    if not turn.conversation_id:
        return
    same = Q(started_at=turn.started_at)
    earlier = Q(started_at__lt=turn.started_at) | same & (
        Q(position__lt=turn.position) | Q(position=turn.position, pk__lt=turn.pk)
    )
    others = Turn.objects.filter(earlier, source=turn.source, conversation_id=turn.conversation_id)
    newest = others.order_by("-started_at", "-position", "-pk").values_list("messages", flat=True)[:MAX_HISTORY_TURNS]
    for messages in reversed(newest):
        yield from _elements(messages)


def _before_reply(messages: list[Node], cycle: int) -> Iterator[Node]:
    """The messages up to the model's reply number `cycle`, from 0."""
    replies = 0
    for node in messages:
        if isinstance(node.value, dict) and node.value.get("role") == "assistant":
            if replies == cycle:
                return
            replies += 1
        yield node


def _elements(text: str | None) -> list[Node]:
    """The elements of a JSON array as they are spelled; of what is none, nothing."""
    if text is None:
        return []
    try:
        return parse(text.encode(), depth=MAX_DEPTH, limit=8 * MAX_BYTES, repeated_keys=True).elements
    except JsonError:
        return []


def _stubs(calls: list[ToolCall]) -> str:
    """What the turn's calls were answered with, for a replay to serve again."""
    stubs = []
    for call in calls:
        result = call.result if call.result is not None else None if call.error is None else dump(call.error)
        if result is not None or call.is_error is not None:
            members = {
                "tool": dump(call.tool_name),
                "arguments": "null" if call.args is None else call.args,
                "result": "null" if result is None else result,
                "isError": dump(bool(call.is_error)),
            }
            stubs.append("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}")
    return f"[{','.join(stubs)}]"


def _beside(calls: list[ToolCall], call: ToolCall | None) -> list[ToolCall]:
    """The other calls of the same reply."""
    return [other for other in calls if call and other.cycle == call.cycle and other.pk != call.pk]


def _behavior(label: str, tool_name: str, correction: Mapping[str, Any] | None) -> str:
    """A first wording of what is expected."""
    correction = correction or {}
    named = correction.get("tool") if isinstance(correction.get("tool"), str) else ""
    has_arguments = correction.get("arguments") is not None
    said = {
        Label.GOOD_REPLY: f"Calls {tool_name} as it did." if tool_name else "Answers in words, without a call.",
        Label.BAD_ARGS: f"Calls {named or tool_name} with the corrected arguments."
        if has_arguments
        else f"Does not call {tool_name} with these arguments.",
        Label.WRONG_TOOL: f"Calls {named} instead of {tool_name or 'answering in words'}."
        if named
        else f"Does not call {tool_name or 'a tool'} here.",
        Label.MISSING_TOOL: f"Calls {named or 'a tool'} before it answers.",
    }
    return said.get(Label(label), "")
