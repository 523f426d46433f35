"""The same message by page, API, WebSocket and schedule leaves the same trace: ids and times aside."""

import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from quality.models import (
    Channel,
    DecisionKind,
    ModelReply,
    Schedule,
    ToolCall,
    Turn,
    TurnEvent,
    TurnRun,
    TurnState,
)
from quality.turns.decide import Verdict, decide
from quality.turns.schedules import fire_due, save_schedule
from tenants.scope import tenant_scope
from tests.service import Service
from tests.turns.conftest import Lab
from tests.turns.lines import dialled

pytestmark = pytest.mark.slow

TEXT = "Weather in Rome?"
DRAWN = re.compile(r"call_[0-9a-f]{24}")  # the id of a call that the model gave none

type Door = Callable[[str, str], int]


@pytest.fixture
def doors(lab: Lab, live_service: Service, api, member) -> dict[Channel, Door]:
    """How a message comes in by each channel; all give the turn's id."""
    client = api("turns:write", "read")

    def by_page(script: str, tools: str) -> int:
        turn = lab.turn(script, tools, text=TEXT, channel=Channel.PAGE, conversation_id="a page", by=client.user)
        return turn.pk

    def by_api(script: str, tools: str) -> int:
        message = {"text": TEXT, "model": script, "styleId": tools, "conversationId": "an API"}
        return client.post("/api/turns", message).json()["id"]

    def by_websocket(script: str, tools: str) -> int:
        with dialled(live_service, additional_headers=client.headers) as line:
            return line.say(TEXT, script, tools)

    def by_schedule(script: str, tools: str) -> int:
        with tenant_scope(lab.tenant):
            schedule = Schedule(name="check", text=TEXT, cron="* * * * *", model_label=script, style_id=tools)
            save_schedule(schedule, now=timezone.now() - dt.timedelta(minutes=2))
        assert fire_due() == 1
        with tenant_scope(lab.tenant):
            return TurnRun.objects.get(channel=Channel.SCHEDULE).turn_id

    return {
        Channel.PAGE: by_page,
        Channel.API: by_api,
        Channel.WEBSOCKET: by_websocket,
        Channel.SCHEDULE: by_schedule,
    }


def nameless(value: Any) -> Any:
    return json.loads(DRAWN.sub("call_drawn", json.dumps(value)))


def row(item: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def toolset_of(item: Any) -> tuple[str, str] | None:
    return (item.toolset.sha256, item.toolset.tools) if item.toolset else None


def trace(turn_id: int) -> dict[str, Any]:
    """All that is on record of a turn, without what names it and without times. In the open scope."""
    turn = Turn.objects.select_related("toolset").get(pk=turn_id)
    run = TurnRun.objects.get(turn=turn_id)
    calls = ToolCall.objects.select_related("toolset").filter(turn=turn_id).order_by("cycle", "index")
    replies = ModelReply.objects.select_related("toolset").filter(turn=turn_id).order_by("cycle", "attempt")
    return {
        "turn": row(
            turn, "source", "state", "end_reason", "model", "provider", "style_id", "prompt_version", "position",
            "messages", "system", "history", "num_calls", "num_cycles", "warnings",
        ),
        "toolset": toolset_of(turn),
        "run": row(run, "state", "model_label", "attempt", "error"),
        "calls": [
            row(
                call, "cycle", "index", "tool_call_id", "tool_name", "args", "args_run", "result", "shown", "is_error",
                "error", "state", "mode", "safety", "model", "style_id", "prompt_version", "warnings", "opening",
            )
            | {"toolset": toolset_of(call), "decisions": [decision.kind for decision in call.decisions.order_by("pk")]}
            for call in calls
        ],
        "replies": [
            row(
                reply, "cycle", "reply", "model", "finish_reason", "prompt_tokens", "completion_tokens", "error_code",
                "warnings",
            )
            | {"toolset": toolset_of(reply)}
            for reply in replies
        ],
        "told": told(turn_id),
    }  # fmt: skip


def told(turn_id: int) -> list[dict[str, Any]]:
    """The live events. How text and arguments are cut into pieces is a matter of time: pieces are joined."""
    joined: list[dict[str, Any]] = []
    for data in TurnEvent.objects.filter(turn=turn_id).order_by("seq").values_list("data", flat=True):
        event = json.loads(data)
        last = joined[-1] if joined else {}
        if event["type"] == last.get("type") == "assistant_delta":
            last["text"] += event["text"]
        elif event.get("state") == last.get("state") == "streaming" and event["index"] == last["index"]:
            last["argumentsDelta"] += event["argumentsDelta"]
        else:
            joined.append(event)
    return joined


@pytest.mark.parametrize(
    ("script", "tools", "state", "end_reason"),
    [
        ("text_and_call,parallel_calls:2,plain_text", "safe", TurnState.DONE, "answered"),
        ("text_call:hermes,unknown_tool,plain_text", "unsafe", TurnState.DONE, "answered"),
        ("one_call,plain_text", "approve", TurnState.DONE, "answered"),
        ("plain_text", "refused", TurnState.FAILED, "no_model"),
    ],
)
def test_a_turn_leaves_the_same_trace_by_whatever_door_it_came(
    lab: Lab, doors: dict[Channel, Door], script: str, tools: str, state: str, end_reason: str
) -> None:
    lab.worker()
    traces = {}
    for channel, enter in doors.items():
        turn_id = enter(script, tools)
        with tenant_scope(lab.tenant):
            turn = Turn.objects.get(pk=turn_id)
        if lab.rests(turn).state == TurnState.AWAITING:
            with tenant_scope(lab.tenant):
                decide(turn_id, [Verdict(ToolCall.objects.get(turn=turn_id).pk, DecisionKind.APPROVE)])
            lab.until(turn, lambda run: run.state == TurnState.DONE)
        with tenant_scope(lab.tenant):
            assert TurnRun.objects.get(turn=turn_id).channel == channel
            traces[channel] = nameless(trace(turn_id))
    first = traces[Channel.PAGE]
    assert (first["turn"]["state"], first["turn"]["end_reason"]) == (state, end_reason)
    assert len(first["told"]) >= (1 if state == TurnState.FAILED else 5)
    for channel, found in traces.items():
        assert found == first, channel
    asked = [nameless(ask.body) for ask in lab.model.asked]
    num = len(asked) // len(doors)  # requests to the model, of each turn
    assert [asked[at : at + num] for at in range(0, len(asked), num or 1)] == [asked[:num]] * (len(doors) if num else 0)
