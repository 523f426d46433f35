"""What people say of cases in a replay: a failure is real, or the expectation is what is wrong.

A dispute stays open until somebody settles it; a case has one open dispute at most. All functions need an open tenant
scope.
"""

from collections.abc import Iterable, Sequence

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Func, TextField
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.cases.sample import Verdict
from quality.improve.case_store import checked_note, locked
from quality.models import Case, CaseVersion, PayloadField, Replay, ReplayCase, ReplayFinding, ReplaySample
from tenants import audit
from tenants.models import ApiToken, User

Kind, Outcome = ReplayFinding.Kind, ReplayFinding.Outcome

FAILING = (Verdict.FAIL, Verdict.INVALID_CALL, Verdict.DIVERGED)
MAX_LISTED = 200
_EXPECTATION = "((%(expressions)s)::json #> '{expected,expectation}')::text"
_CASE_PAYLOAD = [f"case__{field.name}" for field in Case._meta.fields if isinstance(field, PayloadField)]


class FindingConflict(Exception):
    """Somebody was faster. `finding` is the open dispute, or the dispute as it was settled."""

    code = "finding_conflict"

    def __init__(self, finding: ReplayFinding, message: str) -> None:
        super().__init__(message)
        self.finding = finding


@transaction.atomic
def dispute(
    replay: Replay, number: int, *, sample_id: int | None, note: str, by: User, token: ApiToken | None = None
) -> ReplayFinding:
    """Ask an operator whether the expectation of REG-`number` is right. `note` says what is wrong with it.

    Raises ReplayCase.DoesNotExist, ValidationError and FindingConflict.
    """
    row = _row(replay, number)
    text = checked_note(note)
    if not text:
        raise ValidationError({"note": ValidationError(_("Say what is wrong with the expectation."), "required")})
    sample = _sample(row, sample_id)
    refuse_disputed(row.case_id)
    finding = ReplayFinding(kind=Kind.DISPUTED, note=text, is_open=True)
    return _added(finding, row, sample, by, token)


@transaction.atomic
def confirm(
    replay: Replay, number: int, *, sample_id: int | None, note: str = "", by: User, token: ApiToken | None = None
) -> ReplayFinding:
    """A person looked: the failure is a fault of the agent. Said of a sample, or of a case that failed as a whole; the
    same once more gives the first finding.

    Raises ReplayCase.DoesNotExist, ValidationError and FindingConflict.
    """
    row = _row(replay, number)
    sample = _sample(row, sample_id)
    if sample is not None and sample.verdict not in FAILING:
        text = _("This sample did not fail: there is nothing to confirm. Confirm one that failed.")
        raise ValidationError({"sample": ValidationError(text, "not_failing")})
    if sample is None and row.standing != "failed":
        text = _("%(ref)s did not fail in this replay. Confirm a sample that failed.") % {"ref": row.ref}
        raise ValidationError({"sample": ValidationError(text, "not_failing")})
    refuse_disputed(row.case_id)
    said = ReplayFinding.objects.filter(replay=replay, case_id=row.case_id, kind=Kind.CONFIRMED, sample=sample).first()
    if said is not None:
        return said
    finding = ReplayFinding(kind=Kind.CONFIRMED, note=checked_note(note), is_open=False)
    return _added(finding, row, sample, by, token)


@transaction.atomic
def settle(
    finding: ReplayFinding, *, outcome: str, note: str = "", by: User, token: ApiToken | None = None
) -> ReplayFinding:
    """Close a dispute. `changed` is refused as long as the expectation is as it was when it was disputed.

    Raises ValidationError and FindingConflict.
    """
    if outcome not in Outcome.values:
        text = _("%(outcome)s is no outcome. Known: %(known)s.") % {
            "outcome": repr(outcome[:40]),
            "known": ", ".join(Outcome.values),
        }
        raise ValidationError({"outcome": ValidationError(text, "invalid_choice")})
    finding = (
        ReplayFinding.objects.select_for_update(of=("self",))
        .select_related("case")
        .defer(*_CASE_PAYLOAD)
        .get(pk=finding.pk)
    )
    if finding.kind != Kind.DISPUTED:
        raise ValidationError({"outcome": ValidationError(_("Only a dispute is settled."), "not_a_dispute")})
    if not finding.is_open:
        raise FindingConflict(
            finding,
            _("It was settled meanwhile: %(outcome)s.") % {"outcome": finding.get_outcome_display().lower()},
        )
    if outcome == Outcome.CHANGED and changed_in(finding) is None:
        text = _(
            "The expectation of %(ref)s is as it was in version %(case_version)s. Edit the case first, "
            "then settle the dispute; or say that the expectation holds."
        ) % {"ref": finding.case.ref, "case_version": finding.case_version}
        raise ValidationError({"outcome": ValidationError(text, "unchanged")})
    finding.is_open, finding.outcome, finding.outcome_note = False, outcome, checked_note(note)
    finding.settled_by, finding.settled_at = by, timezone.now()
    finding.save(update_fields=["is_open", "outcome", "outcome_note", "settled_by", "settled_at"])
    _record("finding.settled", finding, finding.case.number, by, token, outcome=outcome)
    return finding


def open_disputes() -> list[ReplayFinding]:
    """Those that wait for an operator, the oldest first, with case (without payload), replay and person."""
    return _with_links(is_open=True, order=("at", "pk"))[:MAX_LISTED]


def num_open() -> int:
    return ReplayFinding.objects.filter(is_open=True).count()


def settled_disputes(limit: int = 20) -> list[ReplayFinding]:
    """The ones that were settled last."""
    return _with_links(kind=Kind.DISPUTED, is_open=False, order=("-settled_at", "-pk"))[:limit]


def of_replay(replay: Replay, number: int | None = None) -> list[ReplayFinding]:
    """All that was said in a replay (of one case), the newest first. An open dispute of such a case that was raised in
    another replay is not among it: see `open_dispute`."""
    case = {} if number is None else {"case__number": number}
    return _with_links(replay=replay, order=("-at", "-pk"), **case)[:MAX_LISTED]


def open_dispute(case_id: int) -> ReplayFinding | None:
    """The one that stands open of a case, wherever it was raised."""
    found = _with_links(case_id=case_id, is_open=True, order=("pk",))
    return found[0] if found else None


def changed_in(finding: ReplayFinding) -> int | None:
    """The first version of the case whose expectation is another than the one in dispute; None: there is none."""
    since = CaseVersion.objects.filter(case_id=finding.case_id, number__gte=finding.case_version)
    # As it is spelled: an edit that only spells it in another way is no edit.
    expectation = Func(F("data"), template=_EXPECTATION, output_field=TextField())
    (_, before), *later = since.order_by("number").values_list("number", expectation)
    return next((number for number, text in later if text != before), None)


def with_changes(findings: Sequence[ReplayFinding]) -> list[tuple[ReplayFinding, int | None]]:
    """Each with the version that its expectation was changed in, where that was the outcome."""
    return [(each, changed_in(each) if each.outcome == Outcome.CHANGED else None) for each in findings]


def refuse_disputed(case_id: int) -> None:
    """Raises FindingConflict if the case has an open dispute."""
    if (standing := open_dispute(case_id)) is not None:
        text = _("The expectation of %(ref)s is in dispute already, by %(by)s. Settle that first.") % {
            "ref": standing.case.ref,
            "by": standing.by,
        }
        raise FindingConflict(standing, text)


def _row(replay: Replay, number: int) -> ReplayCase:
    """Its case is locked: whoever says something of it at the same time waits, and then sees this."""
    row: ReplayCase = ReplayCase.objects.get(replay=replay, number=number)
    locked(number)
    return row


def _sample(row: ReplayCase, sample_id: int | None) -> ReplaySample | None:
    if sample_id is None:
        return None
    sample: ReplaySample | None = ReplaySample.objects.defer("data").filter(replay_case=row, pk=sample_id).first()
    if sample is None:
        text = _("%(ref)s has no such sample in this replay.") % {"ref": row.ref}
        raise ValidationError({"sample": ValidationError(text, "no_such_sample")})
    return sample


def _added(
    finding: ReplayFinding, row: ReplayCase, sample: ReplaySample | None, by: User, token: ApiToken | None
) -> ReplayFinding:
    finding.replay_id, finding.case_id, finding.case_version = row.replay_id, row.case_id, row.version
    finding.sample, finding.by = sample, by
    finding.save()
    _record(f"finding.{finding.kind}", finding, row.number, by, token)
    return finding


def _with_links(*, order: Iterable[str], **wanted: object) -> list[ReplayFinding]:
    links = ReplayFinding.objects.filter(**wanted).select_related("case", "replay", "by", "settled_by", "sample")
    return list(links.defer(*_CASE_PAYLOAD, "sample__data").order_by(*order)[:MAX_LISTED])


def _record(action: str, finding: ReplayFinding, number: int, by: User, token: ApiToken | None, **more: str) -> None:
    detail = {"case": f"REG-{number}", "version": finding.case_version, "replay": finding.replay_id, **more}
    audit.record(action, object_type="finding", object_id=finding.pk, actor=by, token=token, detail=detail)
