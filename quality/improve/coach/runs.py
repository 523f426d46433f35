"""A run of the coach as a row: started, claimed, carried out, told. A Celery message only hints at it.

Rules write at once. A model is asked by a worker, outside of any transaction; what it answers is written under the
lease, so a worker that was taken for lost writes nothing more.
"""

import asyncio
import datetime as dt
import json
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import F, Q
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from engine.net import Refused
from engine.providers.protocol import Exchange, ModelError
from quality import model_questions, tasks
from quality.improve.coach import asking, rules
from quality.improve.coach.advice import Advice
from quality.improve.coach.reading import NoSuchStyle, Reading, read
from quality.model_answers import InvalidAnswer
from quality.model_questions import Seat, Talk, Unavailable
from quality.models import CoachItem, CoachRun, CoachState, Feedback
from quality.review import blind
from tenants import audit, endpoints
from tenants.models import ApiToken, Tenant, User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

ASK_S = 180.0  # for the answer and the one retry together
LEASE = dt.timedelta(seconds=ASK_S + 60)
MAX_ATTEMPTS = 3
MODEL, RULES = "model", "rules"


class ModelGaveUp(Exception):
    """The model gave no advice that can be used; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What of a run somebody may see: items with the labels they rest on, as far as these are still there (`num_gone`
    are not). What rests on labels that a blind queue keeps from him is left out, with the summary of the whole."""

    items: list[tuple[CoachItem, list[Feedback]]]
    summary: str
    num_gone: int


def shown_to(run: CoachRun, user: User) -> Shown:
    """A run as this user may see it, in a few queries. Needs an open tenant scope."""
    items = list(CoachItem.objects.filter(run=run).select_related("decided_by").order_by("position"))
    said = {pk for item in items for pk in item.feedback_ids} | set(run.feedback_ids)
    there = Feedback.objects.in_bulk(said)
    seen = set(blind.visible(Feedback.objects.filter(pk__in=there), user).values_list("pk", flat=True))
    hidden = there.keys() - seen
    shown = [item for item in items if not hidden.intersection(item.feedback_ids)]
    return Shown(
        items=[(item, [there[pk] for pk in item.feedback_ids if pk in there]) for item in shown],
        summary="" if hidden else run.summary,
        num_gone=sum(pk not in there for item in shown for pk in item.feedback_ids),
    )


@transaction.atomic
def start(*, style_id: str, by: User, token: ApiToken | None = None, model_label: str = "") -> CoachRun:
    """Ask the coach about a style: by the model with this label, by the first there is, or by rules where there is
    none, which answer at once. Raises ValidationError."""
    try:
        reading = read(style_id)
    except NoSuchStyle as error:
        raise ValidationError({"style_id": ValidationError(str(error), code="no_such_style")}) from error
    if not reading.remarks:
        message = _("No call of this style is labelled wrong tool, missing tool or bad arguments. Label some first.")
        raise ValidationError({"style_id": ValidationError(message, code="no_feedback")})
    label = _label_of(model_label)
    run = CoachRun.objects.create(
        style_id=style_id,
        style_version=reading.style_version,
        method=MODEL if label else RULES,
        model_label=label,
        feedback_ids=[remark.feedback_id for remark in reading.remarks],
        created_by=by,
        token_id=token.pk if token else None,
    )
    detail = {"styleId": style_id, "method": run.method, "model": label}
    audit.record("coach.asked", object_type="coach_run", object_id=run.pk, actor=by, token=token, detail=detail)
    if run.method == RULES:
        with translation.override(settings.LANGUAGE_CODE):  # what is kept is English, whoever asks
            _close(run, rules.advise(reading))
        run.refresh_from_db()
    else:
        tenant_id, run_id = run.tenant_id, run.pk
        transaction.on_commit(lambda: tasks.publish_aside(tasks.run_coach, tenant_id, run_id))
    return run


def _label_of(wanted: str) -> str:
    """Label of the model to ask; "" for rules, which can be asked for by that name."""
    if wanted == RULES:
        return ""
    labels = [endpoint.label for endpoint in endpoints.models_to_ask()]
    if not wanted:
        return next(iter(labels), "")
    if wanted not in labels:
        message = _("There is no enabled model %(wanted)s to ask. Known: %(known)s, and %(rules)s.") % {
            "wanted": repr(wanted),
            "known": ", ".join(labels) or _("none"),
            "rules": RULES,
        }
        raise ValidationError({"model": ValidationError(message, code="no_such_model")})
    return wanted


def run(run_id: int, *, tenant: Tenant | int) -> CoachRun | None:
    """Carry out a run that waits for a model; None if it is another worker's or has ended."""
    with tenant_scope(tenant):
        claimed = _claim(run_id)
        if claimed is None:
            return None
        try:
            reading = read(claimed.style_id, feedback_ids=claimed.feedback_ids)
            seat = model_questions.seat_of(claimed.model_label, run=f"coach:{claimed.pk}")
        except (NoSuchStyle, Unavailable) as error:
            _fail(claimed, str(error))
            return claimed
    talk = Talk()
    advice, failure = None, ""
    try:
        advice = asyncio.run(_asked(seat, reading, talk))
    except ModelGaveUp as error:
        failure = str(error)
    with tenant_scope(tenant):
        claimed.exchanges = _kept(talk.exchanges)
        claimed.num_tokens = talk.usage.total_tokens
        if advice is None:
            _fail(claimed, failure)
        else:
            _close(claimed, advice)
    return claimed


def _claim(run_id: int) -> CoachRun | None:
    """Make the run ours by a guarded update; None if it is not to be had. A third loss ends it."""
    now = timezone.now()
    free = Q(state=CoachState.QUEUED) | Q(state=CoachState.RUNNING, lease_until__lt=now)
    waiting = CoachRun.objects.filter(free, pk=run_id)
    waiting.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=CoachState.FAILED,
        failure=f"The worker was lost {MAX_ATTEMPTS} times. Ask again.",
        finished_at=now,
        lease_until=None,
    )
    claimed = waiting.filter(attempt__lt=MAX_ATTEMPTS).update(
        state=CoachState.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=uuid.uuid4(),
        lease_until=now + LEASE,
    )
    return CoachRun.objects.get(pk=run_id) if claimed else None


async def _asked(seat: Seat, reading: Reading, talk: Talk) -> Advice:
    """The model's advice. Raises ModelGaveUp."""
    label = seat.chosen.label
    try:
        async with seat.guard.client(seat.chosen.base_url) as client:
            return await model_questions.ask(
                seat.chosen.built(client, seat.key),
                asking.messages_for(reading),
                talk,
                response_format=asking.response_format(reading),
                read=partial(asking.read_answer, reading=reading),
                deadline=time.monotonic() + ASK_S,
            )
    except Refused as error:
        raise ModelGaveUp(f"Nobody may call {label}'s address: {error.message}.") from error
    except ModelError as error:
        raise ModelGaveUp(f"{label} did not answer: {error} Test it on its page, or ask another one.") from error
    except InvalidAnswer as error:
        message = f"{label} answered twice with what cannot be used. {error} Ask again, or another model."
        raise ModelGaveUp(message) from error


def _kept(exchanges: Sequence[Exchange]) -> str:
    """The exchanges as JSON text; keys are out of them already."""
    told = [
        {
            "status": exchange.status,
            "durationMs": exchange.duration_ms,
            "fault": exchange.fault,
            "body": exchange.body,
        }
        for exchange in exchanges
    ]
    return json.dumps(told)


def _close(finished: CoachRun, advice: Advice) -> None:
    """Store the advice, if the run is still ours."""
    if not _end(finished, state=CoachState.DONE, summary=advice.summary):
        return
    CoachItem.objects.bulk_create(
        CoachItem(
            run=finished,
            position=position,
            kind=item.kind,
            text=item.text,
            user_text=item.user,
            assistant_text=item.assistant,
            rationale=item.rationale,
            feedback_ids=list(item.feedback_ids),
        )
        for position, item in enumerate(advice.items)
    )


def _fail(finished: CoachRun, failure: str) -> None:
    _end(finished, state=CoachState.FAILED, failure=failure)


def _end(finished: CoachRun, **changes: object) -> bool:
    changes |= {
        "exchanges": finished.exchanges,
        "num_tokens": finished.num_tokens,
        "finished_at": timezone.now(),
        "lease_until": None,
    }
    ours = CoachRun.objects.filter(
        pk=finished.pk,
        lease_token=finished.lease_token,
        state__in=(CoachState.QUEUED, CoachState.RUNNING),
    )
    if not ours.update(**changes):
        logger.warning("coach run %s: another worker took it over", finished.pk)
        return False
    for name, value in changes.items():
        setattr(finished, name, value)
    return True


def overdue() -> models.QuerySet[CoachRun]:
    """Runs whose message or worker was lost, in every tenant the `janitor` may see."""
    now = timezone.now()
    lost = Q(state=CoachState.QUEUED, created_at__lt=now - dt.timedelta(seconds=60)) | Q(
        state=CoachState.RUNNING, lease_until__lt=now
    )
    return models.QuerySet(CoachRun).using("janitor").filter(lost)
