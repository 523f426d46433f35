"""Quarantine: a case that is flaky though nothing changed is still run, and gates nothing, until somebody mends it.

It is proposed once for each version of a case, after three scheduled runs in a row; a person decides. A case is in
quarantine by its tag. All functions need an open tenant scope.
"""

import datetime as dt
from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models import BooleanField, F, Func, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.cases.results import QUARANTINE
from quality.improve import cases
from quality.improve.case_store import checked_note, refuse
from quality.models import (
    Case,
    CaseStatus,
    CaseVersion,
    PayloadField,
    QuarantineProposal,
    Replay,
    ReplayCase,
    ReplaySide,
    ReplayState,
)
from tenants import audit
from tenants.models import ApiToken, User

RUNS = 3  # in a row
State = QuarantineProposal.State
_PAYLOAD = [field.name for field in Case._meta.fields if isinstance(field, PayloadField)]
_HAS_TAG = f"(((%(expressions)s)::json -> 'tags')::jsonb @> '[\"{QUARANTINE}\"]')"


class QuarantineConflict(Exception):
    """The proposal was decided already, or its case is another by now."""

    code = "quarantine_conflict"


@transaction.atomic
def propose_after(replay: Replay) -> list[QuarantineProposal]:
    """What this run of a schedule adds to the proposals: cases that were flaky in it and the two before, in the same
    version, on a side that stayed the same."""
    runs = _last_runs(replay)
    if len(runs) < RUNS:
        return []
    steady = set.intersection(*(_flaky_places(each) for each in runs))
    flaky = {(case_id, version) for case_id, version, _ in steady}
    active = Case.objects.filter(pk__in={case_id for case_id, _ in flaky}, status=CaseStatus.ACTIVE)
    unmarked = active.exclude(tags__contains=[QUARANTINE]).order_by("number").values_list("pk", "version")
    replay_ids = [each.pk for each in runs]
    new = [
        QuarantineProposal(case_id=pk, case_version=version, replay_ids=replay_ids)
        for pk, version in unmarked
        if (pk, version) in flaky
    ]
    QuarantineProposal.objects.bulk_create(new, ignore_conflicts=True)  # once for each version
    return list(QuarantineProposal.objects.filter(replay_ids=replay_ids).order_by("pk"))


def pending() -> list[QuarantineProposal]:
    """Those that wait for somebody, the oldest first; not those of a case that was changed since."""
    links = _waiting().select_related("case").defer(*(f"case__{name}" for name in _PAYLOAD))
    return list(links.order_by("created_at", "pk"))


def num_pending() -> int:
    return _waiting().count()


def decided(limit: int = 20) -> list[QuarantineProposal]:
    """The ones that were decided last."""
    rows = QuarantineProposal.objects.exclude(state=State.PENDING).select_related("case", "decided_by")
    return list(rows.defer(*(f"case__{name}" for name in _PAYLOAD)).order_by("-decided_at", "-pk")[:limit])


@transaction.atomic
def accept(proposal: QuarantineProposal, by: User, *, token: ApiToken | None = None) -> Case:
    """Put the case into quarantine, as a new version of it. Raises QuarantineConflict and `CaseConflict`."""
    proposal = _locked(proposal)
    case = proposal.case
    runs = ", ".join(str(pk) for pk in proposal.replay_ids)
    note = f"Quarantine: flaky in replays {runs}, with nothing changed between them."
    tags = [*case.tags, QUARANTINE]
    edited = cases.edit(case.number, by=by, seen_version=proposal.case_version, tags=tags, note=note, token=token)
    _decide(proposal, State.ACCEPTED, by, token)
    return edited


@transaction.atomic
def dismiss(
    proposal: QuarantineProposal, by: User, reason: str, *, token: ApiToken | None = None
) -> QuarantineProposal:
    """It keeps gating; this version is not proposed again. Raises QuarantineConflict and ValidationError."""
    proposal = _locked(proposal)
    text = checked_note(reason)
    if not text:
        refuse("reason", "required", _("Say why it is not put into quarantine."))
    _decide(proposal, State.DISMISSED, by, token, reason=text)
    return proposal


def release(case: Case, by: User, *, note: str = "", token: ApiToken | None = None) -> Case:
    """Let the case gate again, as a new version of it. Raises NoSuchCase, CaseConflict and ValidationError."""
    tags = [tag for tag in case.tags if tag != QUARANTINE]
    note = note or "Released from quarantine."
    return cases.edit(case.number, by=by, seen_version=case.version, tags=tags, note=note, token=token)


def quarantined() -> list[tuple[Case, dt.datetime]]:
    """The active cases that are in quarantine, without payload, and since when: the ones longest in it first."""
    rows = Case.objects.filter(status=CaseStatus.ACTIVE, tags__contains=[QUARANTINE]).defer(*_PAYLOAD)
    found = list(rows)
    ages = _since(found)
    return sorted(((case, ages[case.pk]) for case in found), key=lambda each: (each[1], each[0].number))


def since(case: Case) -> dt.datetime | None:
    """When the case was put into quarantine; None: it is in none."""
    return _since([case])[case.pk] if QUARANTINE in case.tags else None


def _waiting() -> QuerySet[QuarantineProposal]:
    current = {"case__version": F("case_version"), "case__status": CaseStatus.ACTIVE}
    rows: QuerySet[QuarantineProposal] = QuarantineProposal.objects.filter(state=State.PENDING, **current)
    return rows


def _since(found: Sequence[Case]) -> dict[int, dt.datetime]:
    """Of each, when the first of the versions in a row was made that bear the tag up to now."""
    tagged = Func(F("data"), template=_HAS_TAG, output_field=BooleanField())
    rows = CaseVersion.objects.filter(case__in=found).order_by("case", "-number").values_list("case_id", "at", tagged)
    ages = {case.pk: case.updated_at for case in found}
    out = set[int]()
    for case_id, at, has_tag in rows:
        if not has_tag:
            out.add(case_id)
        elif case_id not in out:
            ages[case_id] = at
    return ages


def _last_runs(replay: Replay) -> list[Replay]:
    """This run and those before it that came to an end, the newest first; none if it is not one of a schedule."""
    if replay.schedule_id is None or replay.slot is None or replay.state != ReplayState.DONE:
        return []
    of_schedule = Replay.objects.filter(
        schedule=replay.schedule_id, slot__lte=replay.slot, state=ReplayState.DONE, num_cases__gt=0
    )
    return list(of_schedule.order_by("-slot").only("pk")[:RUNS])


def _flaky_places(replay: Replay) -> set[tuple[int, int, tuple[str, str]]]:
    """(case, version, (side, what it is asked with)) of each case that passed now and then."""
    sides = dict(ReplaySide.objects.filter(replay=replay).values_list("name", "same_sha256"))
    return {
        (row.case_id, row.version, (side, sides[side]))
        for row in ReplayCase.objects.filter(replay=replay, is_quarantined=False)
        for side, passes, judged in _counts(row)
        if side in sides and 0 < passes < judged
    }


def _counts(row: ReplayCase) -> Iterable[tuple[str, int, int]]:
    yield ReplaySide.Name.BASELINE.value, row.baseline_passes, row.baseline_judged
    yield ReplaySide.Name.CANDIDATE.value, row.candidate_passes, row.candidate_judged


def _locked(proposal: QuarantineProposal) -> QuarantineProposal:
    """As it is now, still to be decided, with its case."""
    rows = QuarantineProposal.objects.select_for_update(of=("self",)).select_related("case", "decided_by")
    found: QuarantineProposal = rows.defer(*(f"case__{name}" for name in _PAYLOAD)).get(pk=proposal.pk)
    if found.state != State.PENDING:
        told = _("%(ref)s was decided meanwhile, by %(person)s: %(state)s.")
        state = found.get_state_display().lower()
        raise QuarantineConflict(told % {"ref": found.case.ref, "person": found.decided_by, "state": state})
    if found.case.version != found.case_version:
        raise QuarantineConflict(
            _("%(ref)s was changed since it was flaky. See whether it still is.") % {"ref": found.case.ref}
        )
    return found


def _decide(
    proposal: QuarantineProposal, state: QuarantineProposal.State, by: User, token: ApiToken | None, reason: str = ""
) -> None:
    proposal.state, proposal.reason, proposal.decided_by, proposal.decided_at = state, reason, by, timezone.now()
    proposal.save(update_fields=["state", "reason", "decided_by", "decided_at"])
    audit.record(
        f"quarantine.{state}",
        object_type="quarantine",
        object_id=proposal.pk,
        actor=by,
        token=token,
        detail={"case": proposal.case.ref, "version": proposal.case_version, "replays": proposal.replay_ids},
    )
