"""Reading the audit log: who did what, newest first. Needs an open tenant scope."""

import datetime as dt
from dataclasses import dataclass

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from tenants.models import ApiToken, AuditEvent

PAGE_SIZE = 100

SUBJECTS: dict[str, Promise] = {
    "member": _("Sign-ins, members and roles"),
    "invitation": _("Invitations"),
    "token": _("API tokens"),
    "secret": _("Secrets"),
    "feedback": _("Labels"),
    "item": _("Tags and the archive"),
    "bulk": _("Bulk actions"),
    "queue": _("Queues"),
    "suggestions": _("Suggested labels"),
    "view": _("Saved views"),
    "guidelines": _("Guidelines"),
    "proposal": _("Proposals"),
    "case": _("Cases"),
    "cases": _("Imports of cases"),
    "finding": _("Disputed and confirmed failures"),
    "quarantine": _("Quarantine of cases"),
    "replay": _("Replays"),
    "replay_schedule": _("Schedules of replays"),
    "notification": _("Notifications"),
    "webhook": _("Webhooks"),
    "coach": _("Coach"),
    "export": _("Exports"),
    "import": _("Imports"),
    "evidence": _("Evidence replaced"),
    "call": _("Decisions on calls"),
    "turn": _("Turns"),
    "trace": _("Traces"),
    "schedule": _("Schedules"),
    "tool": _("Tools"),
    "tools": _("Active definitions"),
    "scripts": _("Script tools"),
    "databases": _("Databases"),
    "booking": _("Booking"),
    "model": _("Models"),
    "style": _("Styles"),
    "skill": _("Skills"),
    "limits": _("Limits"),
    "desk": _("Exchange desk"),
    "order": _("Exchange orders"),
    "customer": _("Exchange customers"),
    "tenant": _("Tenant"),
}
"""What an action is about, the word before its dot. A test finds the ones that are missing."""


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """What the log is narrowed to; empty fields narrow nothing. `since` is included, `until` is not."""

    subject: str = ""
    action: str = ""
    actor_id: int | None = None
    object_type: str = ""
    object_id: str = ""
    request_id: str = ""
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def condition(self) -> Q:
        columns = {
            "action__startswith": f"{self.subject}." if self.subject else "",
            "action": self.action,
            "actor_id": self.actor_id,
            "object_type": self.object_type,
            "object_id": self.object_id,
            "request_id": self.request_id,
            "at__gte": self.since,
            "at__lt": self.until,
        }
        return Q(**{column: value for column, value in columns.items() if value})


@dataclass(frozen=True, kw_only=True)
class AuditPage:
    """Events newest first, with `actor` loaded and `token_name` set; whether there are older and newer ones."""

    events: list[AuditEvent]
    has_older: bool
    has_newer: bool


def find(wanted: AuditFilter, *, before: int | None = None, after: int | None = None) -> AuditPage:
    """One page: the newest, or what comes `before` or `after` the event with that id. Ids grow with time."""
    events = AuditEvent.objects.filter(wanted.condition()).select_related("actor")
    if after is not None:
        found = list(events.filter(pk__gt=after).order_by("pk")[: PAGE_SIZE + 1])
    else:
        older = events.filter(pk__lt=before) if before is not None else events
        found = list(older.order_by("-pk")[: PAGE_SIZE + 1])
    more = len(found) > PAGE_SIZE
    found = found[:PAGE_SIZE]
    if after is not None:
        found.reverse()
    _name_tokens(found)
    return AuditPage(
        events=found,
        has_older=more if after is None else True,
        has_newer=more if after is not None else before is not None,
    )


def _name_tokens(events: list[AuditEvent]) -> None:
    names = dict(ApiToken.objects.filter(pk__in={event.token_id for event in events}).values_list("pk", "name"))
    for event in events:
        event.token_name = names.get(event.token_id or 0, "")  # type: ignore[attr-defined]
