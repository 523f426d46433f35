"""Turns of our own as their rows stand, with nobody who runs them."""

import json
from typing import Any

from quality.ingest.jsontext import dump
from quality.models import CallState, ModelReply, ToolCall, Turn, TurnEvent, TurnRun, TurnState
from tests.factories import ToolCallFactory, TurnFactory


def own_turn(state: str = TurnState.AWAITING, *, asked: str = "Weather in Rome?", **fields: Any) -> Turn:
    """A turn that came in by the API. Needs an open scope."""
    run = {name: fields.pop(name) for name in ("channel", "created_by", "token_id", "error") if name in fields}
    turn: Turn = TurnFactory(
        source="engine", state=state, messages=json.dumps([{"role": "user", "content": asked}]), **fields
    )
    TurnRun.objects.create(turn=turn, conversation_id=turn.conversation_id, state=state, **{"channel": "api"} | run)
    return turn


def waiting_call(turn: Turn | None = None, state: str = CallState.PENDING, **fields: Any) -> ToolCall:
    """A call that a person is to decide on, with the reply that asked for it."""
    turn = turn or own_turn()
    call: ToolCall = ToolCallFactory(
        **{"turn": turn, "state": state, "is_error": None, "result": None, "mode": "approve", "safety": "unsafe",
           "opening": 1, "args": '{"city": "Rome"}'} | fields
    )  # fmt: skip
    if not ModelReply.objects.filter(turn=turn, cycle=call.cycle).exists():
        reply(turn, "I look it up.", cycle=call.cycle)
    return call


def reply(turn: Turn, text: str, *, cycle: int = 0, **fields: Any) -> ModelReply:
    told = {"text": text, "reasoning": "", "warnings": [], "calls": [], "broken": []}
    return ModelReply.objects.create(
        **{"turn": turn, "cycle": cycle, "attempt": 1, "reply": dump(told), "exchanges": "[]", "prompt_tokens": 7,
           "completion_tokens": 3} | fields
    )  # fmt: skip


def events(turn: Turn, *told: dict[str, Any]) -> None:
    """Live events of a turn, numbered from 1."""
    for seq, event in enumerate(told, 1):
        TurnEvent.objects.create(turn=turn, seq=seq, data=dump(event))
    TurnRun.objects.filter(turn=turn).update(last_seq=len(told))
