"""What may be sent over a WebSocket. Each message is an object with a `type`; the rest is as in the API's bodies."""

import json
import uuid
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from quality.api.problems import InvalidRequest, fault, handle, problem
from quality.api.shapes import StrictRequest
from quality.api.turns import ToolResultsRequest, TurnRequest, answer_calls, begin_turn
from quality.ingest.jsontext import JsonError, dump, parse
from quality.models import Channel, Turn, TurnRun
from quality.review.items import NoSuchItem
from quality.turns.create import TurnConflict, cancel_turn
from quality.turns.decide import AlreadyDecided
from quality.websocket.caller import Caller
from tenants.masking.reading import reading_as
from tenants.scope import tenant_scope

MAX_BYTES = 1024 * 1024


class CancelRequest(StrictRequest):
    turnId = serializers.IntegerField(required=False, min_value=1)


class ResultsRequest(ToolResultsRequest):
    turnId = serializers.IntegerField(required=False, min_value=1)


class FollowRequest(StrictRequest):
    turnId = serializers.IntegerField(min_value=1)
    after = serializers.IntegerField(required=False, min_value=0, default=0)


class PingRequest(StrictRequest):
    pass


TYPES: dict[str, type[StrictRequest]] = {
    "user_text": TurnRequest,
    "tool_result": ResultsRequest,
    "cancel": CancelRequest,
    "follow": FollowRequest,
    "ping": PingRequest,
}


def read(text: str | None) -> tuple[str, dict[str, Any]]:
    """A message's type and its members; raises what `told` can tell."""
    if text is None:
        raise InvalidRequest([fault("", "binary", "Messages are text, not binary.")])
    try:
        value = parse(text.encode(), limit=MAX_BYTES).value
    except JsonError as error:
        where = f"{error.message} (line {error.line}, column {error.column})" if error.line else error.message
        raise InvalidRequest([fault(error.path, error.code, where)]) from error
    if not isinstance(value, dict):
        raise InvalidRequest([fault("", "not_an_object", "A message is a JSON object.")])
    kind = value.pop("type", None)
    if not isinstance(kind, str) or kind not in TYPES:
        raise InvalidRequest([fault("type", "unknown_type", f"Expected one of: {', '.join(TYPES)}.")])
    serializer = TYPES[kind](data=value)
    serializer.is_valid(raise_exception=True)
    return kind, dict(serializer.validated_data)


def send(caller: Caller, wanted: dict[str, Any]) -> Turn:
    with reading_as(caller.masker), tenant_scope(caller.tenant):
        return begin_turn(wanted, Channel.WEBSOCKET, by=caller.user, token=caller.token)


def answer(caller: Caller, turn_id: int, wanted: dict[str, Any]) -> None:
    with reading_as(caller.masker), tenant_scope(caller.tenant):
        answer_calls(turn_id, wanted, by=caller.user, token=caller.token)


def call_off(caller: Caller, turn_id: int) -> None:
    with tenant_scope(caller.tenant):
        if cancel_turn(turn_id, by=caller.user, token=caller.token) is None:
            raise NoSuchItem


def state_of(caller: Caller, turn_id: int) -> str:
    """The state of a turn of ours; raises NoSuchItem if the caller's tenant has none of this number."""
    with tenant_scope(caller.tenant):
        run = TurnRun.objects.filter(turn=turn_id).only("state").first()
        if run is None:
            raise NoSuchItem
        return run.state


def new_conversation_id() -> str:
    return f"ws-{uuid.uuid4().hex}"


def told(error: Exception) -> str | None:
    """The `error` message that tells of a fault, in the words of the API; None for what was not foreseen."""
    if isinstance(error, TurnConflict):
        return error_text(problem(409, "conflict", str(error), errors=[fault("externalId", "conflict", str(error))]))
    if isinstance(error, AlreadyDecided):
        return error_text(problem(409, "already_decided", str(error)))
    found = handle(error, {})
    return error_text(found) if found is not None else None


def error_text(answer: HttpResponse) -> str:
    """A problem of the API as a message."""
    body = json.loads(answer.content)
    code = body["errors"][0]["code"] if len(body["errors"]) == 1 else body["type"].rpartition(":")[2]
    return dump(
        {
            "type": "error",
            "code": code,
            "message": body["detail"],
            "errors": body["errors"],
            "requestId": body["requestId"],
        }
    )
