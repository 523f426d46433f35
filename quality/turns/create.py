"""A turn begins: a row, committed, then a hint to the workers. And how one is called off."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages, tasks
from quality.ingest.jsontext import dump, storable
from quality.ingest.records import MAX_NAME_CHARS, fingerprint
from quality.models import ENDED, Channel, Turn, TurnRun, TurnState
from quality.stored import json_sent
from quality.turns.endings import cancel_parked_turn, close_overtaken
from quality.turns.history import check_history
from tenants import audit
from tenants.masking import reading
from tenants.models import ApiToken, User
from tenants.scope import current_tenant_id

SOURCE = "engine"
CANCEL_CHANNEL = "turn_cancel"
MAX_TEXT_CHARS = 100_000
MAX_LEARNT = 20  # turns of the conversation whose marks may stand in a message


class TurnConflict(Exception):
    """Another turn was created under this external id."""


def create_turn(
    *,
    text: str,
    channel: Channel,
    conversation_id: str = "",
    contact_id: str = "",
    message_id: str = "",
    external_id: str = "",
    history: Sequence[Mapping[str, Any]] | None = None,
    model_label: str = "",
    style_id: str = "",
    by: User | None = None,
    token: ApiToken | None = None,
) -> Turn:
    """Queue the answer to one message, in the open scope. The same `external_id` again gives the first turn; raises
    TurnConflict if that was about something else, ValidationError for what cannot be.

    A message in a conversation whose last turn waits for a person closes that turn's open calls as not answered.
    """
    names = {
        "external_id": external_id,
        "conversation_id": conversation_id,
        "contact_id": contact_id,
        "message_id": message_id,
        "model_label": model_label,
        "style_id": style_id,
    }
    _check(text=text, names=names)
    check_history(history or ())
    text, contact_id, history = _put_back(conversation_id, text, contact_id, history)
    external_id = storable(external_id) or uuid.uuid4().hex
    digest = bytes.fromhex(fingerprint(text, conversation_id, model_label, style_id, dump(history)))
    if found := Turn.objects.filter(source=SOURCE, external_id=external_id).first():
        return _same(found, digest)
    conversation_id = storable(conversation_id)
    close_overtaken(conversation_id, by=by, token=token)
    try:
        with transaction.atomic():
            turn = Turn.objects.create(
                source=SOURCE,
                external_id=external_id,
                content_sha256=digest,
                conversation_id=conversation_id,
                contact_id=storable(contact_id),
                message_id=storable(message_id) or f"{external_id}/message",
                state=TurnState.QUEUED,
                style_id=storable(style_id),
                position=_position(conversation_id),
                messages=dump([{"role": "user", "content": text}]),
                history=None if history is None else dump(list(history)),
            )
    except IntegrityError:
        return _same(Turn.objects.get(source=SOURCE, external_id=external_id), digest)
    TurnRun.objects.create(
        turn=turn,
        conversation_id=conversation_id,
        channel=channel,
        model_label=storable(model_label),
        created_by=by,
        token_id=token.pk if token else None,
    )
    hint(turn.pk)
    return turn


def _put_back(
    conversation_id: str, text: str, contact_id: str, history: Sequence[Mapping[str, Any]] | None
) -> tuple[str, str, Sequence[Mapping[str, Any]] | None]:
    """What was sent by somebody who sees marks, with what is behind those of the conversation: a model must not read
    marks where a person wrote of a value. Raises ValidationError for others."""
    if reading.current() is None:
        return text, contact_id, history
    if conversation_id:
        newest = Turn.objects.filter(conversation_id=conversation_id).order_by("-pk")[:MAX_LEARNT]
        list(newest.values_list("contact_id", "messages"))
    told = json.loads(json_sent("text", dump(text))), json.loads(json_sent("contact_id", dump(contact_id)))
    return *told, None if history is None else json.loads(json_sent("history", dump(list(history))))


def hint(turn_id: int) -> None:
    """Tell the workers, once the transaction is committed, that a turn of the open scope's tenant is queued."""
    tenant_id = current_tenant_id()
    transaction.on_commit(lambda: tasks.publish_aside(tasks.run_turn, tenant_id, turn_id))


def cancel_turn(turn_id: int, *, by: User | None = None, token: ApiToken | None = None) -> TurnRun | None:
    """End a turn, in the open scope: at once if nobody runs it, else as soon as its runner hears of it. A turn that has
    ended stays as it is. None: there is no such turn of ours."""
    run = TurnRun.objects.select_for_update().filter(turn=turn_id).first()
    if run is None or run.state in ENDED:
        return run
    if run.state == TurnState.RUNNING:
        if run.cancel_requested_at is None:
            TurnRun.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now())
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CANCEL_CHANNEL, str(turn_id)])
    else:
        cancel_parked_turn(turn_id)
    audit.record("turn.cancelled", object_type="turn", object_id=turn_id, actor=by, token=token)
    run.refresh_from_db()
    return run


def _check(*, text: str, names: Mapping[str, str]) -> None:
    if not text.strip():
        raise ValidationError({"text": ValidationError(_("Say something."), "blank")})
    if len(text) > MAX_TEXT_CHARS:
        told = _("At most %(limit)s characters.") % {"limit": languages.number(MAX_TEXT_CHARS)}
        raise ValidationError({"text": ValidationError(told, "too_long")})
    for name, value in names.items():
        if len(value) > MAX_NAME_CHARS:
            told = _("At most %(limit)s characters.") % {"limit": MAX_NAME_CHARS}
            raise ValidationError({name: ValidationError(told, "too_long")})


def _same(turn: Turn, digest: bytes) -> Turn:
    if bytes(turn.content_sha256) != digest:
        told = _("The external id %(id)s is another turn's: its message differs.")
        raise TurnConflict(told % {"id": repr(turn.external_id)})
    return turn


def _position(conversation_id: str) -> int:
    return Turn.objects.filter(conversation_id=conversation_id).count() if conversation_id else 0
