"""Turns of our own loop. While one runs its rows hold the real values: the model and its tools need them, and whoever
takes the turn up after a crash. With its end, and in the same transaction, all of it is masked."""

import json
from collections.abc import Iterable, Sequence

from quality.ingest.jsontext import dump
from quality.ingest.records import fingerprint
from quality.models import CallDecision, ModelReply, ToolCall, Turn, TurnEvent, TurnRun
from quality.privacy import rows
from tenants import masks
from tenants.masking.reading import Reading, as_stored
from tenants.models import TenantModel

_PIECES = ("text", "argumentsDelta")  # of events, each a part of something that shows in none of them


def mask_ended(turn_ids: Iterable[int]) -> None:
    """Mask what these turns, which have ended, keep; in the open scope."""
    turn_ids = list(turn_ids)
    masker = masks.at_write() if turn_ids else None
    if masker is None:
        return
    with as_stored():  # somebody who reads through a masker may have ended one
        for turn_id in turn_ids:
            rows.save(masked_turn(turn_id, Reading(masker)))


def masked_turn(turn_id: int, reading: Reading) -> list[tuple[TenantModel, list[str]]]:
    """The rows of a turn with the columns that were changed; nothing is written. Read them as they are stored."""
    changed: list[tuple[TenantModel, list[str]]] = []
    for call in ToolCall.objects.filter(turn=turn_id).order_by("cycle", "index"):
        names = rows.mask(call, reading)
        if names and call.mode is not None:  # else the ingest compares it
            call.content_sha256 = bytes.fromhex(fingerprint(call.external_id, call.tool_name, call.args))
            names.append("content_sha256")
        changed.append((call, names))
    rest: Sequence[Iterable[TenantModel]] = (
        CallDecision.objects.filter(turn=turn_id),
        Turn.objects.filter(pk=turn_id),
        TurnRun.objects.filter(turn=turn_id),
    )
    for found in rest:
        changed += [(row, rows.mask(row, reading)) for row in found]
    for reply in ModelReply.objects.filter(turn=turn_id):
        names = rows.mask(reply, reading)
        if bare := _without_bodies(reply.exchanges):
            reply.exchanges = bare
            names = [*{*names, "exchanges"}]
        changed.append((reply, names))
    for event in TurnEvent.objects.filter(turn=turn_id).order_by("seq"):
        names = rows.mask(event, reading)
        if silent := _without_pieces(event.data):
            event.data = silent
            names = ["data"]
        changed.append((event, names))
    return changed


def _without_bodies(exchanges: str) -> str | None:
    """A server's answer comes in pieces, too: what was read of it is the reply. None: there is none in it."""
    told = json.loads(exchanges)
    if not any(exchange.get("body") for exchange in told):
        return None
    return dump([{**exchange, "body": ""} for exchange in told])


def _without_pieces(data: str) -> str | None:
    event = json.loads(data)
    if not any(event.get(name) for name in _PIECES):
        return None
    return dump({name: "" if name in _PIECES else value for name, value in event.items()})
