"""What webhooks can be told of. One table: the audited action, the event it is, and what it says.

What is audited is what happened, in the same transaction; so an event is made of the row of the audit log, and no
writer can forget one. Bodies hold references and links, never evidence: a receiver with a token reads the rest.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from quality.models import Case, FeedbackEvent, Proposal, Replay
from tenants.models import AuditEvent, Tenant, User

EVERY = "*"
TEST = "webhook.test"


type Rows = Sequence[AuditEvent]
type Said = Iterator[tuple[AuditEvent, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of event. `data` makes the body's `data` of many rows of the audit log at once, for a bulk action writes
    hundreds; it passes over those of which there is nothing to tell."""

    name: str
    label: Any
    actions: tuple[str, ...]
    data: Callable[[Rows, Tenant], Said]


@dataclass(frozen=True, kw_only=True)
class Message:
    """What is sent of one event."""

    event: str
    subject: str
    body: str


def messages_of(rows: Rows, tenant: Tenant) -> list[Message]:
    """The messages about rows of the audit log, in their order; none about those of no kind that webhooks know."""
    alike = defaultdict(list)
    for row in rows:
        if kind := BY_ACTION.get(row.action):
            alike[kind.data].append(row)
    said = {row.pk: data for make, found in alike.items() for row, data in make(found, tenant)}
    return [_message(row, said[row.pk], tenant) for row in rows if row.pk in said]


def _message(row: AuditEvent, data: dict[str, Any], tenant: Tenant) -> Message:
    name = BY_ACTION[row.action].name
    said = {"type": name, "timestamp": row.at.isoformat(), "tenant": tenant.slug, "data": data}
    return Message(event=name, subject=f"{row.object_type} {row.object_id}", body=_json(said))


def test_body(name: str, tenant: Tenant, moment: Any) -> str:
    return _json({"type": TEST, "timestamp": moment.isoformat(), "tenant": tenant.slug, "data": {"webhook": name}})


def _json(said: dict[str, Any]) -> str:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _page(name: str, tenant: Tenant, **parts: Any) -> str:
    return settings.PUBLIC_URL.rstrip("/") + reverse(name, kwargs={"slug": tenant.slug, **parts})


def _person(user: User | None) -> dict[str, Any] | None:
    return {"id": user.pk, "name": str(user)} if user else None


type ItemKey = tuple[int | None, int, int]


def _labels(rows: Rows, tenant: Tenant) -> Said:
    """Of labels given or taken back: the item, what this reviewer says of it now and said before."""
    found = _steps([_step_key(row) for row in rows])
    for row in rows:
        if event := found.get(_step_key(row)):
            yield row, _label(event, row, tenant)


def _step_key(row: AuditEvent) -> tuple[ItemKey, int]:
    """Which step of which item's history a row is about."""
    pk, version = int(row.object_id), row.detail["version"]
    return ((pk, 0, 0) if row.object_type == "tool_call" else (None, pk, row.detail["cycle"])), version


def _steps(keys: Sequence[tuple[ItemKey, int]]) -> dict[tuple[ItemKey, int], FeedbackEvent]:
    calls = Q(call_id__in={call for (call, _turn, _cycle), _version in keys if call is not None})
    turns = Q(call_id=None, turn_id__in={turn for (call, turn, _cycle), _version in keys if call is None})
    steps = FeedbackEvent.objects.filter(calls | turns, version__in={version for _item, version in keys})
    return {
        ((step.call_id, 0, 0) if step.call_id else (None, step.turn_id, step.cycle), step.version): step
        for step in steps.select_related("reviewer")
    }


def _label(event: FeedbackEvent, row: AuditEvent, tenant: Tenant) -> dict[str, Any]:
    page = (
        _page("call-detail", tenant, pk=event.call_id)
        if event.call_id
        else _page("turn-detail", tenant, pk=event.turn_id)
    )
    return {
        "callId": event.call_id,
        "turnId": event.turn_id,
        "cycle": event.cycle,
        "label": event.label,
        "before": row.detail.get("from"),
        "version": event.version,
        "hasNote": bool(event.note),
        "hasCorrection": event.correction is not None,
        "reviewer": _person(event.reviewer),
        "url": page,
    }


def _proposals(rows: Rows, tenant: Tenant) -> Said:
    found = Proposal.objects.in_bulk({int(row.object_id) for row in rows})
    for row in rows:
        if proposal := found.get(int(row.object_id)):
            yield row, _proposal(proposal, row, tenant)


def _proposal(found: Proposal, row: AuditEvent, tenant: Tenant) -> dict[str, Any]:
    return {
        "id": found.pk,
        "state": found.state,
        "label": found.label,
        "toolName": found.tool_name,
        "styleId": found.style_id,
        "fault": found.fault,
        "resolution": {"kind": found.resolution_kind, "ref": found.resolution_ref} if found.resolution_kind else None,
        "by": _person(row.actor),
        "url": _page("proposal-detail", tenant, pk=found.pk),
    }


def _cases(rows: Rows, tenant: Tenant) -> Said:
    numbers = {row.pk: int(row.object_id.removeprefix("REG-")) for row in rows}
    found = {case.number: case for case in Case.objects.filter(number__in=set(numbers.values()))}
    for row in rows:
        if case := found.get(numbers[row.pk]):
            yield row, _case(case, row, tenant)


def _case(found: Case, row: AuditEvent, tenant: Tenant) -> dict[str, Any]:
    return {
        "id": found.ref,
        "version": found.version,
        "status": found.status,
        "toolName": found.tool_name,
        "label": found.label,
        "changed": row.detail.get("changed", []),
        "by": _person(row.actor),
        "url": _page("case-detail", tenant, number=found.number),
    }


def _imports(rows: Rows, tenant: Tenant) -> Said:
    for row in rows:
        numbers = {name: row.detail.get(name, 0) for name in ("created", "changed", "unchanged")}
        yield row, numbers | {"by": _person(row.actor), "url": _page("case-list", tenant)}


def _replays(rows: Rows, tenant: Tenant) -> Said:
    found = Replay.objects.defer("result").in_bulk({int(row.object_id) for row in rows})
    for row in rows:
        if replay := found.get(int(row.object_id)):
            yield row, _replay(replay, row, tenant)


def _replay(found: Replay, row: AuditEvent, tenant: Tenant) -> dict[str, Any]:
    return {
        "id": found.pk,
        "name": found.name,
        "state": found.state,
        "exitCode": found.exit_code,
        "cases": found.num_cases,
        "samples": found.num_finished,
        "errors": found.num_errors,
        "failure": found.failure,
        "by": _person(row.actor),
        "url": _page("replay-detail", tenant, pk=found.pk),
    }


KINDS = (
    Kind(name="label.given", label=_("A label is given"), actions=("feedback.labelled",), data=_labels),
    Kind(name="label.undone", label=_("A label is taken back"), actions=("feedback.undone",), data=_labels),
    Kind(name="proposal.tracked", label=_("A proposal is tracked"), actions=("proposal.tracked",), data=_proposals),
    Kind(name="proposal.applied", label=_("A proposal is applied"), actions=("proposal.applied",), data=_proposals),
    Kind(
        name="proposal.dismissed", label=_("A proposal is dismissed"), actions=("proposal.dismissed",), data=_proposals
    ),
    Kind(name="proposal.reopened", label=_("A proposal is reopened"), actions=("proposal.reopened",), data=_proposals),
    Kind(name="case.created", label=_("A case is made"), actions=("case.created",), data=_cases),
    Kind(name="case.changed", label=_("A case is changed"), actions=("case.edited", "case.merged"), data=_cases),
    Kind(name="case.archived", label=_("A case is archived"), actions=("case.archived",), data=_cases),
    Kind(name="case.restored", label=_("A case is restored"), actions=("case.restored",), data=_cases),
    Kind(name="cases.imported", label=_("Cases are imported"), actions=("cases.imported",), data=_imports),
    Kind(name="replay.started", label=_("A replay begins"), actions=("replay.started",), data=_replays),
    Kind(
        name="replay.finished",
        label=_("A replay ends"),
        actions=("replay.done", "replay.failed", "replay.cancelled"),
        data=_replays,
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
BY_ACTION = {action: kind for kind in KINDS for action in kind.actions}
