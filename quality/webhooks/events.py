"""What webhooks can be told of. One table: the audited action, the event it is, and what it says.

What is audited is what happened, in the same transaction; so an event is made of the row of the audit log, and no
writer can forget one. Bodies hold references and links, never evidence: a receiver with a token reads the rest.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from quality.models import Case, FeedbackEvent, Proposal, Replay
from tenants.models import AuditEvent, Tenant, User

EVERY = "*"
TEST = "webhook.test"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of event. `data` makes the body's `data` of a row of the audit log; None: there is nothing to tell."""

    name: str
    label: Any
    actions: tuple[str, ...]
    data: Callable[[AuditEvent, Tenant], dict[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class Message:
    """What is sent of one event."""

    event: str
    subject: str
    body: str


def message_of(row: AuditEvent, tenant: Tenant) -> Message | None:
    """The message about a row of the audit log; None where it is of no kind that webhooks know."""
    kind = BY_ACTION.get(row.action)
    data = kind.data(row, tenant) if kind else None
    if kind is None or data is None:
        return None
    said = {"type": kind.name, "timestamp": row.at.isoformat(), "tenant": tenant.slug, "data": data}
    return Message(event=kind.name, subject=f"{row.object_type} {row.object_id}", body=_json(said))


def test_body(name: str, tenant: Tenant, moment: Any) -> str:
    return _json({"type": TEST, "timestamp": moment.isoformat(), "tenant": tenant.slug, "data": {"webhook": name}})


def _json(said: dict[str, Any]) -> str:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _page(name: str, tenant: Tenant, **parts: Any) -> str:
    return settings.PUBLIC_URL.rstrip("/") + reverse(name, kwargs={"slug": tenant.slug, **parts})


def _person(user: User | None) -> dict[str, Any] | None:
    return {"id": user.pk, "name": str(user)} if user else None


def _label(row: AuditEvent, tenant: Tenant) -> dict[str, Any] | None:
    """Of a label given or taken back: the item, what this reviewer says of it now and said before."""
    item = (
        {"call_id": int(row.object_id)}
        if row.object_type == "tool_call"
        else {"turn_id": int(row.object_id), "call_id": None, "cycle": row.detail["cycle"]}
    )
    event = FeedbackEvent.objects.select_related("reviewer").filter(version=row.detail["version"], **item).first()
    if event is None:
        return None
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


def _proposal(row: AuditEvent, tenant: Tenant) -> dict[str, Any] | None:
    found = Proposal.objects.filter(pk=row.object_id).first()
    if found is None:
        return None
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


def _case(row: AuditEvent, tenant: Tenant) -> dict[str, Any] | None:
    found = Case.objects.filter(number=int(row.object_id.removeprefix("REG-"))).first()
    if found is None:
        return None
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


def _import(row: AuditEvent, tenant: Tenant) -> dict[str, Any]:
    return {
        "created": row.detail.get("created", 0),
        "changed": row.detail.get("changed", 0),
        "unchanged": row.detail.get("unchanged", 0),
        "by": _person(row.actor),
        "url": _page("case-list", tenant),
    }


def _replay(row: AuditEvent, tenant: Tenant) -> dict[str, Any] | None:
    found = Replay.objects.defer("result").filter(pk=row.object_id).first()
    if found is None:
        return None
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
    Kind(name="label.given", label=_("A label is given"), actions=("feedback.labelled",), data=_label),
    Kind(name="label.undone", label=_("A label is taken back"), actions=("feedback.undone",), data=_label),
    Kind(name="proposal.tracked", label=_("A proposal is tracked"), actions=("proposal.tracked",), data=_proposal),
    Kind(name="proposal.applied", label=_("A proposal is applied"), actions=("proposal.applied",), data=_proposal),
    Kind(
        name="proposal.dismissed", label=_("A proposal is dismissed"), actions=("proposal.dismissed",), data=_proposal
    ),
    Kind(name="proposal.reopened", label=_("A proposal is reopened"), actions=("proposal.reopened",), data=_proposal),
    Kind(name="case.created", label=_("A case is made"), actions=("case.created",), data=_case),
    Kind(name="case.changed", label=_("A case is changed"), actions=("case.edited", "case.merged"), data=_case),
    Kind(name="case.archived", label=_("A case is archived"), actions=("case.archived",), data=_case),
    Kind(name="case.restored", label=_("A case is restored"), actions=("case.restored",), data=_case),
    Kind(name="cases.imported", label=_("Cases are imported"), actions=("cases.imported",), data=_import),
    Kind(name="replay.started", label=_("A replay begins"), actions=("replay.started",), data=_replay),
    Kind(
        name="replay.finished",
        label=_("A replay ends"),
        actions=("replay.done", "replay.failed", "replay.cancelled"),
        data=_replay,
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
BY_ACTION = {action: kind for kind in KINDS for action in kind.actions}
