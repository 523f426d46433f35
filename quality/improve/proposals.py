"""Tracked improvements: from a group of feedback to a decision. All functions need an open tenant scope.

A proposal is pending, dismissed or applied. It changes by guarded updates: of two decisions the second is refused and
told the first. Each step is an event that nothing changes afterwards.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages
from quality.improve import groups, keyset
from quality.improve.groups import Example, GroupKey, Window
from quality.improve.rates import Rates, rates_of
from quality.ingest.jsontext import storable
from quality.models import ArtifactKind, Case, Proposal, ProposalEvent, ProposalState
from tenants import audit
from tenants.models import ApiToken, User

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
MAX_REASON_CHARS = 2_000
MAX_REF_CHARS = 500
MAX_NOTE_CHARS = 10_000
MAX_EXAMPLES = 10
Action = ProposalEvent.Action
_DECIDED = (ProposalState.DISMISSED, ProposalState.APPLIED)
_UNDECIDED = {
    "reason": "",
    "resolution_kind": "",
    "resolution_ref": "",
    "resolution_note": "",
    "decided_by": None,
    "decided_at": None,
}


class NoSuchProposal(LookupError):
    """The tenant has no such proposal."""


class ProposalConflict(Exception):
    """A step that came too late. `proposal` is what is there now."""

    code = "conflict"

    def __init__(self, proposal: Proposal, message: str) -> None:
        super().__init__(message)
        self.proposal = proposal


class AlreadyDecided(ProposalConflict):
    """A second decision: `proposal` carries the first one."""

    code = "already_decided"

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(proposal, _decided(proposal) % {"number": proposal.pk, "person": proposal.decided_by})


def _decided(proposal: Proposal) -> str:
    if proposal.state == ProposalState.APPLIED and proposal.decided_by:
        return _("Proposal %(number)s was applied by %(person)s meanwhile. To decide anew, reopen it first.")
    if proposal.state == ProposalState.APPLIED:
        return _("Proposal %(number)s was applied meanwhile. To decide anew, reopen it first.")
    if proposal.decided_by:
        return _("Proposal %(number)s was dismissed by %(person)s meanwhile. To decide anew, reopen it first.")
    return _("Proposal %(number)s was dismissed meanwhile. To decide anew, reopen it first.")


class StaleProposal(ProposalConflict):
    """It was decided and reopened since its author saw it."""

    code = "stale_proposal"

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(
            proposal,
            _("Proposal %(number)s is at version %(version)s now. Look at it, then decide again.")
            % {"number": proposal.pk, "version": proposal.version},
        )


class NotDecided(ProposalConflict):
    """What is pending cannot be reopened."""

    code = "not_decided"

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(proposal, _("Proposal %(number)s is open already.") % {"number": proposal.pk})


class Overtaken(ProposalConflict):
    """A newer proposal has taken the group over: `other`. Feedback would belong to two."""

    code = "overtaken"

    def __init__(self, proposal: Proposal, other: Proposal) -> None:
        super().__init__(
            proposal,
            _("Proposal %(number)s took this group over (%(state)s). Go on there, or reopen that one.")
            % {"number": other.pk, "state": str(ProposalState(other.state).label).lower()},
        )
        self.other = other


@dataclass(frozen=True, kw_only=True)
class ProposalFilter:
    """What a list is narrowed to; empty fields narrow nothing."""

    states: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    tool: str = ""
    style: str = ""
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class ProposalRow:
    """`num_items` are calls (or replies without one), `num_feedback` the labels on them."""

    proposal: Proposal
    num_items: int
    num_feedback: int


@dataclass(frozen=True, kw_only=True)
class ProposalPage:
    rows: list[ProposalRow]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class ProposalDetail:
    """A proposal with what it rests on, its history (oldest first), its rates and the cases made of it."""

    proposal: Proposal
    events: list[ProposalEvent]
    num_items: int
    num_feedback: int
    examples: tuple[Example, ...]
    rates: Rates
    cases: list[Case]


def get(pk: int) -> Proposal:
    """With the people loaded; raises NoSuchProposal."""
    proposal = Proposal.objects.select_related("decided_by", "created_by").filter(pk=pk).first()
    if proposal is None:
        raise NoSuchProposal(_("There is no proposal %(number)s.") % {"number": pk})
    return proposal


def pending_of(key: GroupKey) -> Proposal | None:
    """The pending proposal of a group."""
    return Proposal.objects.filter(**vars(key), state=ProposalState.PENDING).first()


def find(
    wanted: ProposalFilter, *, cursor: str | None = None, page_size: int = PAGE_SIZE, viewer: int | None = None
) -> ProposalPage:
    """A page of proposals, those changed last first, in two queries; raises BadCursor. A `viewer` is told how
    many labels there are of those that he may see."""
    rows = Proposal.objects.select_related("decided_by", "created_by").order_by("-updated_at", "-pk")
    columns = {
        "state__in": wanted.states,
        "label__in": wanted.labels,
        "tool_name": wanted.tool,
        "style_id": wanted.style,
        "fault": wanted.fault,
    }
    rows = rows.filter(**{column: value for column, value in columns.items() if value})
    if cursor:
        at, pk = keyset.read(cursor, keyset.moment, keyset.number)
        rows = rows.filter(updated_at__lte=at).exclude(updated_at=at, pk__gte=pk)
    found = list(rows[: page_size + 1])
    shown = found[:page_size]
    return ProposalPage(
        rows=_counted(shown, viewer),
        next=keyset.write(shown[-1].updated_at, shown[-1].pk) if len(found) > page_size else None,
    )


def detail(pk: int, *, viewer: int | None = None) -> ProposalDetail:
    """All about one proposal, as far as a `viewer` may see it; raises NoSuchProposal."""
    proposal = get(pk)
    (row,) = _counted([proposal], viewer)
    (examples,) = groups.examples_of([Window.of(proposal)], limit=MAX_EXAMPLES, viewer=viewer)
    return ProposalDetail(
        proposal=proposal,
        events=list(proposal.events.select_related("by").order_by("version")),
        num_items=row.num_items,
        num_feedback=row.num_feedback,
        examples=examples,
        rates=rates_of(proposal, viewer=viewer),
        cases=list(proposal.cases.order_by("number").only("pk", "number", "status", "behavior", "tenant_id")),
    )


def _counted(proposals: Sequence[Proposal], viewer: int | None) -> list[ProposalRow]:
    if not proposals:
        return []
    counts = groups.counts_of([Window.of(proposal) for proposal in proposals], viewer=viewer)
    return [
        ProposalRow(proposal=proposal, num_items=num_items, num_feedback=num_feedback)
        for proposal, (num_items, num_feedback) in zip(proposals, counts, strict=True)
    ]


def track(key: GroupKey, *, by: User, token: ApiToken | None = None, at: dt.datetime | None = None) -> Proposal:
    """The group's pending proposal, made now (or `at` an earlier time, for records of what was) if there is none;
    raises NoSuchGroup if nobody says such a thing since the last decision."""
    return ensure_tracked(key, by=by, token=token, at=at)[0]


@transaction.atomic
def ensure_tracked(
    key: GroupKey, *, by: User, token: ApiToken | None = None, at: dt.datetime | None = None
) -> tuple[Proposal, bool]:
    """The same, and whether it was made now."""
    if pending := pending_of(key):
        return pending, False
    group = groups.get(key)
    if group.state != groups.UNTRACKED:
        raise groups.NoSuchGroup(_("All feedback of this group belongs to a decided proposal. Reopen that one."))
    proposal = Proposal(
        **vars(key),
        suggested_kind=group.suggested_kind,
        title=storable(group.key.title_in_english),
        covers_since=group.window.since,
        created_by=by,
        created_at=at or timezone.now(),
    )
    proposal.updated_at = proposal.created_at
    try:
        with transaction.atomic():
            proposal.save(force_insert=True)
    except IntegrityError:  # the same group, tracked by somebody else at the same time
        return Proposal.objects.get(**vars(key), state=ProposalState.PENDING), False
    _write(proposal, Action.TRACK, by=by, token=token)
    return proposal, True


def dismiss(
    pk: int, *, reason: str, by: User, seen_version: int | None = None, token: ApiToken | None = None
) -> Proposal:
    """Decide that nothing is done; raises NoSuchProposal, ProposalConflict and ValidationError."""
    reason = _text("reason", reason, MAX_REASON_CHARS)
    if not reason:
        _refuse("reason", "required", _("Say why nothing is done about it."))
    decision = {"state": ProposalState.DISMISSED, "reason": reason}
    return _decide(pk, Action.DISMISS, decision, by=by, seen_version=seen_version, token=token)


def apply(
    pk: int,
    *,
    kind: str,
    ref: str = "",
    note: str = "",
    by: User,
    seen_version: int | None = None,
    token: ApiToken | None = None,
    at: dt.datetime | None = None,
) -> Proposal:
    """Decide that it is mended, by what; raises NoSuchProposal, ProposalConflict and ValidationError."""
    if kind not in ArtifactKind.values:
        told = _("%(kind)s is no kind of fix. Use one of %(known)s.")
        _refuse("kind", "unknown_kind", told % {"kind": repr(kind), "known": ", ".join(ArtifactKind.values)})
    ref, note = _text("ref", ref, MAX_REF_CHARS), _text("note", note, MAX_NOTE_CHARS)
    if kind in (ArtifactKind.PULL_REQUEST, ArtifactKind.REGRESSION_CASE) and not ref:
        told = _("Say which %(kind)s it is.")
        _refuse("ref", "required", told % {"kind": str(ArtifactKind(kind).label).lower()})
    if not (ref or note):
        _refuse("note", "required", _("Say what was done: a reference, a note, or both."))
    if kind == ArtifactKind.REGRESSION_CASE:
        number = ref.removeprefix("REG-")
        if not (number.isascii() and number.isdigit() and Case.objects.filter(number=int(number)).exists()):
            _refuse("ref", "no_such_case", _("There is no case %(ref)s.") % {"ref": ref})
        ref = f"REG-{int(number)}"
    decision = {
        "state": ProposalState.APPLIED,
        "resolution_kind": kind,
        "resolution_ref": ref,
        "resolution_note": note,
    }
    return _decide(pk, Action.APPLY, decision, by=by, seen_version=seen_version, token=token, at=at)


@transaction.atomic
def reopen(
    pk: int, *, by: User, reason: str = "", seen_version: int | None = None, token: ApiToken | None = None
) -> Proposal:
    """Take a decision back; its event stays. Only of the group's newest proposal: feedback would belong to two else.

    Raises NoSuchProposal, ProposalConflict and ValidationError."""
    reason = _text("reason", reason, MAX_REASON_CHARS)
    proposal = get(pk)
    newer = Proposal.objects.filter(**vars(GroupKey.of(proposal)), pk__gt=pk).order_by("pk").last()
    if newer:
        raise Overtaken(proposal, newer)
    rows = Proposal.objects.filter(pk=pk, state__in=_DECIDED)
    try:
        with transaction.atomic():
            undecided = {"state": ProposalState.PENDING, **_UNDECIDED}
            done = _update(rows, undecided, seen_version, timezone.now())
    except IntegrityError as error:  # the group was tracked anew at the same time
        pending = pending_of(GroupKey.of(proposal))
        raise Overtaken(get(pk), pending or proposal) from error
    after = get(pk)
    if not done:
        raise NotDecided(after) if after.state == ProposalState.PENDING else StaleProposal(after)
    _write(after, Action.REOPEN, by=by, token=token, reason=reason, before=proposal.state)
    return after


@transaction.atomic
def _decide(
    pk: int,
    action: ProposalEvent.Action,
    decision: dict[str, Any],
    *,
    by: User,
    seen_version: int | None,
    token: ApiToken | None,
    at: dt.datetime | None = None,
) -> Proposal:
    at = at or timezone.now()
    rows = Proposal.objects.filter(pk=pk, state=ProposalState.PENDING)
    done = _update(rows, {**decision, "decided_by": by, "decided_at": at}, seen_version, at)
    after = get(pk)
    if not done:
        raise StaleProposal(after) if after.state == ProposalState.PENDING else AlreadyDecided(after)
    _write(after, action, by=by, token=token, reason=after.reason, before=ProposalState.PENDING)
    return after


def _update(rows: Any, changes: dict[str, Any], seen_version: int | None, at: dt.datetime) -> bool:
    """Change the row if it still is what its author saw: of parallel writes one gets it."""
    if seen_version is not None:
        rows = rows.filter(version=seen_version)
    return bool(rows.update(**changes, version=F("version") + 1, updated_at=at))


def _write(
    proposal: Proposal,
    action: ProposalEvent.Action,
    *,
    by: User,
    token: ApiToken | None,
    reason: str = "",
    before: str | None = None,
) -> None:
    """The event, and the line in the audit log."""
    ProposalEvent.objects.create(
        proposal=proposal,
        version=proposal.version,
        action=action,
        reason=reason,
        resolution_kind=proposal.resolution_kind,
        resolution_ref=proposal.resolution_ref,
        resolution_note=proposal.resolution_note,
        by=by,
        token_id=token.pk if token else None,
        at=proposal.updated_at,
    )
    detail = {"label": proposal.label, "from": before, "to": proposal.state, "version": proposal.version}
    if proposal.resolution_kind:
        detail |= {"kind": proposal.resolution_kind, "ref": proposal.resolution_ref}
    audit.record(
        f"proposal.{_SAID[action]}",
        object_type="proposal",
        object_id=proposal.pk,
        actor=by,
        token=token,
        before={"state": before} if before else None,
        after={"state": proposal.state, "kind": proposal.resolution_kind, "ref": proposal.resolution_ref},
        detail=detail,
    )


_SAID = {Action.TRACK: "tracked", Action.DISMISS: "dismissed", Action.APPLY: "applied", Action.REOPEN: "reopened"}


def _text(field: str, value: str, limit: int) -> str:
    value = value.strip()
    if len(value) > limit:
        _refuse(
            field,
            "too_long",
            _("It has %(count)s characters; the limit is %(limit)s.")
            % {"count": languages.number(len(value)), "limit": languages.number(limit)},
        )
    if value != storable(value):
        _refuse(field, "unstorable", _("It holds a NUL character or half a surrogate pair. Take it out."))
    return value


def _refuse(field: str, code: str, message: str) -> NoReturn:
    raise ValidationError({field: ValidationError(message, code=code)})
