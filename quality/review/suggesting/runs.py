"""A run in which a model judges items in advance: started within a budget, carried out in slices, ended.

The row is the truth, a Celery message only hints at it. A claim raises `fence`; each write of a worker goes through it,
so one that was taken for lost writes nothing more. All functions but `run` need an open tenant scope.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import Count, F, Q
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.net import Refused
from engine.providers.openai import OpenAIModel
from engine.providers.protocol import ModelError, Usage
from quality import model_questions, tasks
from quality.filters import CallFilterForm
from quality.model_answers import InvalidAnswer
from quality.model_questions import Seat, Talk, Unavailable
from quality.models import ReviewQueue, Suggestion, SuggestionRun
from quality.review import blind
from quality.review.items import Item, NoSuchItem
from quality.review.suggesting import asking, candidates, reading
from quality.review.suggesting.asking import Opinion, Question
from tenants import audit, endpoints
from tenants.models import ApiToken, Tenant, User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

type Place = dict[str, Any]

State = SuggestionRun.State
LIVE: Final = (State.QUEUED, State.RUNNING)
MAX_ITEMS: Final = 5_000
MAX_LIVE: Final = 3  # of a tenant at once
AT_ONCE: Final = 4  # questions under way, of a server that answers all of them within QUICK_S; of others one
QUICK_S: Final = 20.0
ASK_S: Final = 180.0  # for one answer and the one retry
SLICE_S: Final = 120.0
LEASE: Final = dt.timedelta(seconds=2 * ASK_S + 60)
MAX_FAILURES: Final = 5  # in a row: the server is away, or the model cannot do this


class NotOurs(Exception):
    """The run is no longer ours to write of: cancelled, or another worker has it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one question: an opinion or a fault, and what it took."""

    item: Item
    opinion: Opinion | None
    fault: str
    usage: Usage


def every(limit: int = 50) -> list[SuggestionRun]:
    """The newest runs, as `with_outcomes` gives them."""
    newest = list(SuggestionRun.objects.order_by("-created_at", "-pk").values_list("pk", flat=True)[:limit])
    return list(with_outcomes(newest).order_by("-created_at", "-pk"))


def with_outcomes(ids: Collection[int]) -> models.QuerySet[SuggestionRun]:
    """These runs with queue and author, and `accepted`, `overruled`, `undecided` counted: of as many as are shown, for
    each is thousands of rows."""
    counted = {
        name: Count("suggestions", filter=Q(suggestions__state=state))
        for name, state in (
            ("accepted", Suggestion.State.ACCEPTED),
            ("overruled", Suggestion.State.OVERRULED),
            ("undecided", Suggestion.State.OPEN),
        )
    }
    return SuggestionRun.objects.filter(pk__in=ids).select_related("queue", "created_by").annotate(**counted)


@dataclass(frozen=True, slots=True)
class Page:
    """Suggestions in the order in which they were made; `after` is where the next page begins, None at the end."""

    rows: list[Suggestion]
    after: int | None


def suggestions_of(
    run: SuggestionRun, user: User, *, state: str = "", after: int | None = None, limit: int = 200
) -> Page:
    """What a run suggested, without what this user must not see yet."""
    rows = Suggestion.objects.filter(run=run)
    if state:
        rows = rows.filter(state=state)
    if after is not None:
        rows = rows.filter(pk__gt=after)
    found = list(rows.order_by("pk")[: limit + 1])
    page = found[:limit]
    items = {
        row.pk: Item(turn_id=row.turn_id, cycle=row.cycle, call_id=row.call_id, started_at=row.created_at)
        for row in page
    }
    hidden = blind.hidden_from(user, items.values())
    shown = [row for row in page if items[row.pk] not in hidden]
    return Page(shown, page[-1].pk if len(found) > limit else None)


@transaction.atomic
def start(
    *,
    endpoint_label: str,
    queue_id: int | None = None,
    query: str = "",
    max_items: int,
    max_tokens: int | None = None,
    by: User,
    token: ApiToken | None = None,
) -> SuggestionRun:
    """Have a model judge items of a queue or of a filter of Calls in advance. Raises ValidationError by field."""
    faults = {}
    if endpoint_label not in [endpoint.label for endpoint in endpoints.models_to_ask()]:
        text = _("There is no enabled model %(label)s to ask. Add one under Models.") % {"label": repr(endpoint_label)}
        faults["endpoint_label"] = ValidationError(text, "no_such_model")
    if fault := _place_fault(queue_id, query):
        faults["queue" if queue_id is not None else "query"] = fault
    if not 1 <= max_items <= MAX_ITEMS:
        text = _("Choose 1 to %(limit)d items.") % {"limit": MAX_ITEMS}
        faults["max_items"] = ValidationError(text, "out_of_range")
    if max_tokens is not None and not 1_000 <= max_tokens < 2**53:
        faults["max_tokens"] = ValidationError(_("Choose at least 1,000 tokens, or leave it empty."), "out_of_range")
    if SuggestionRun.objects.filter(state__in=LIVE).count() >= MAX_LIVE:
        text = _("%(limit)d runs are going already. Wait for one, or cancel it.") % {"limit": MAX_LIVE}
        faults["endpoint_label"] = ValidationError(text, "too_many")
    if faults:
        raise ValidationError(faults)
    run = SuggestionRun.objects.create(
        endpoint_label=endpoint_label,
        queue_id=queue_id,
        query=query if queue_id is None else "",
        max_items=max_items,
        max_tokens=max_tokens,
        leased_until=timezone.now() + dt.timedelta(minutes=1),  # to be claimed until then
        created_by=by,
    )
    _record("suggestions.asked", run, by, token, items=max_items, tokens=max_tokens)
    _publish_on_commit(run)
    return run


def _place_fault(queue_id: int | None, query: str) -> ValidationError | None:
    if queue_id is None:
        faults = CallFilterForm(QueryDict(query)).faults()
        return ValidationError(faults[0]["message"], faults[0]["code"]) if faults else None
    queue = ReviewQueue.objects.filter(pk=queue_id, deleted_at=None).first()
    if queue is None:
        return ValidationError(_("There is no such queue."), "no_such_queue")
    if queue.is_blind:
        return ValidationError(_("The queue is blind: nobody there may see a suggestion."), "blind_queue")
    return None


@transaction.atomic
def cancel(run: SuggestionRun, *, by: User, token: ApiToken | None = None) -> bool:
    """Stop a run; what it suggested stays. False if it had ended."""
    stopped = SuggestionRun.objects.filter(pk=run.pk, state__in=LIVE).update(
        state=State.CANCELLED, ended_at=timezone.now(), leased_until=None
    )
    if stopped:
        _record("suggestions.cancelled", run, by, token)
    return bool(stopped)


@transaction.atomic
def delete(run: SuggestionRun, *, by: User, token: ApiToken | None = None) -> None:
    """Take a run back with all it suggested. Labels that people gave stay."""
    _record("suggestions.deleted", run, by, token, items=run.num_items)
    run.delete()


def overdue() -> models.QuerySet[SuggestionRun]:
    """Runs whose message or worker was lost, in every tenant the `janitor` may see."""
    rows: models.QuerySet[SuggestionRun] = models.QuerySet(SuggestionRun).using("janitor")
    return rows.filter(state__in=LIVE, leased_until__lt=timezone.now())


# --- carrying it out -------------------------------------------------------------------------------------------------


def run(run_id: int, *, tenant: Tenant | int) -> SuggestionRun | None:
    """A slice of a run; more follow until it ends. None if it is another worker's or has ended. Opens scopes itself."""
    with tenant_scope(tenant):
        claimed = _claim(run_id)
        if claimed is None:
            return None
        try:
            seat = model_questions.seat_of(claimed.endpoint_label, run=f"suggestions:{claimed.pk}")
        except Unavailable as error:
            _end(claimed, State.FAILED, failure=str(error))
            return claimed
    try:
        _slice(claimed, seat, tenant)
    except NotOurs:
        logger.info("suggestion run %s: it was cancelled, or another worker has it", claimed.pk)
    return claimed


def _claim(run_id: int) -> SuggestionRun | None:
    """Make it ours by a guarded update; None if it is not to be had."""
    now = timezone.now()
    free = Q(state=State.QUEUED) | Q(state=State.RUNNING, leased_until__lt=now)
    taken = SuggestionRun.objects.filter(free, pk=run_id).update(
        state=State.RUNNING, fence=F("fence") + 1, leased_until=now + LEASE
    )
    return SuggestionRun.objects.select_related("queue").get(pk=run_id) if taken else None


def _slice(claimed: SuggestionRun, seat: Seat, tenant: Tenant | int) -> None:
    deadline, width = time.monotonic() + SLICE_S, 1
    while True:
        with tenant_scope(tenant):
            place, questions, version = _questions(claimed, width)
            if not questions:
                _end(claimed, State.DONE, ended_why=_why(claimed))
                return
        begun = time.monotonic()
        told = asyncio.run(_asked(seat, questions))
        is_quick = time.monotonic() - begun < QUICK_S and any(one.opinion for one in told)
        width = min(2 * width, AT_ONCE) if is_quick else 1
        with tenant_scope(tenant):
            _keep(claimed, told, place, seat.chosen.name, version)
            if claimed.place["failed_in_a_row"] >= MAX_FAILURES:
                _end(claimed, State.FAILED)
                return
            if time.monotonic() > deadline:
                _give_back(claimed)
                return


def _questions(claimed: SuggestionRun, width: int) -> tuple[Place, list[tuple[Item, Question]], int | None]:
    """What is asked next, within the budget, with the place behind it; nothing: it has come to its end."""
    room = min(width, claimed.max_items - claimed.num_items - claimed.num_failed)
    text, version = reading.guidelines_for(claimed.queue)
    if room <= 0 or _is_spent(claimed):
        return claimed.place, [], version
    while True:
        found = candidates.following(claimed, room)
        asked, gone = [], []
        for item in found.items:
            try:
                asked.append((item, reading.question_of(item, text)))
            except (NoSuchItem, models.ObjectDoesNotExist):  # it was deleted meanwhile
                gone.append(item)
        place = candidates.passing_over(found.place, gone)
        if asked or not gone:
            return place, asked, version
        claimed.place = place


def _is_spent(claimed: SuggestionRun) -> bool:
    spent = claimed.prompt_tokens + claimed.completion_tokens
    return claimed.max_tokens is not None and spent >= claimed.max_tokens


def _why(claimed: SuggestionRun) -> str:
    if _is_spent(claimed):
        return "tokens"
    return "items" if claimed.num_items + claimed.num_failed >= claimed.max_items else "all"


async def _asked(seat: Seat, questions: Sequence[tuple[Item, Question]]) -> list[Told]:
    """What the model says to each question, all under way at once."""
    try:
        async with seat.guard.client(seat.chosen.base_url) as client:
            model = seat.chosen.built(client, seat.key)
            return list(await asyncio.gather(*(_one(model, item, question) for item, question in questions)))
    except Refused as error:
        fault = f"Nobody may call {seat.chosen.label}'s address: {error.message}."
        return [Told(item, None, fault, Usage()) for item, _question in questions]


async def _one(model: OpenAIModel, item: Item, question: Question) -> Told:
    talk, opinion, fault = Talk(), None, ""
    try:
        opinion = await model_questions.ask(
            model,
            asking.messages_for(question),
            talk,
            response_format=asking.RESPONSE_FORMAT,
            read=asking.read_answer,
            deadline=time.monotonic() + ASK_S,
        )
    except ModelError as error:
        fault = f"The model did not answer: {error}"
    except InvalidAnswer as error:
        fault = f"The model answered twice with what cannot be used. {error}"
    return Told(item, opinion, fault, talk.usage)


# --- writing under the fence -----------------------------------------------------------------------------------------


def _held(claimed: SuggestionRun) -> SuggestionRun:
    """The row, locked; raises NotOurs."""
    ours = SuggestionRun.objects.select_for_update(of=("self",)).filter(
        pk=claimed.pk, fence=claimed.fence, state=State.RUNNING
    )
    found = ours.first()
    if found is None:
        raise NotOurs
    return found


def _keep(claimed: SuggestionRun, told: Sequence[Told], place: Place, model: str, version: int | None) -> None:
    held = _held(claimed)
    made = [
        Suggestion(
            **one.item.columns,
            run=held,
            model=model,
            label=one.opinion.label,
            confidence=one.opinion.confidence,
            reason=one.opinion.reason,
            tool_name=one.item.tool_name,
            guideline_version=version,
        )
        for one in told
        if one.opinion
    ]
    Suggestion.objects.bulk_create(made, ignore_conflicts=True)  # another run may have been first
    kept = candidates.judged([one.item for one in told if one.opinion], by=held)
    failed = [one.item for one in told if not one.opinion]
    in_a_row = 0 if kept else held.place.get("failed_in_a_row", 0) + len(failed)
    held.place = candidates.passing_over(place, failed) | {"failed_in_a_row": in_a_row}
    held.failure = next((one.fault for one in told if one.fault), held.failure)
    held.leased_until = timezone.now() + LEASE
    held.num_items += len(kept)
    held.num_failed += len(failed)
    held.prompt_tokens += sum(one.usage.prompt_tokens for one in told)
    held.completion_tokens += sum(one.usage.completion_tokens for one in told)
    held.save()
    for field in ("place", "failure", "num_items", "num_failed", "prompt_tokens", "completion_tokens"):
        setattr(claimed, field, getattr(held, field))


def _give_back(claimed: SuggestionRun) -> None:
    held = _held(claimed)
    held.state, held.leased_until = State.QUEUED, timezone.now() + dt.timedelta(minutes=1)
    held.save(update_fields=["state", "leased_until"])
    _publish_on_commit(held)


def _end(claimed: SuggestionRun, state: str, *, ended_why: str = "", failure: str = "") -> None:
    """Without a `failure` of its own the one stays that a question met last."""
    held = _held(claimed)
    held.state, held.ended_why, held.failure = state, ended_why, failure or held.failure
    held.ended_at, held.leased_until = timezone.now(), None
    held.save(update_fields=["state", "ended_why", "failure", "ended_at", "leased_until"])
    claimed.state, claimed.ended_why, claimed.failure = state, ended_why, held.failure


def _publish_on_commit(run: SuggestionRun) -> None:
    transaction.on_commit(partial(tasks.publish_aside, tasks.run_suggestions, run.tenant_id, run.pk))


def _record(action: str, run: SuggestionRun, by: User, token: ApiToken | None, **more: object) -> None:
    detail = {"model": run.endpoint_label, "queue": run.queue_id, "query": run.query, **more}
    audit.record(action, object_type="suggestion_run", object_id=run.pk, actor=by, token=token, detail=detail)
