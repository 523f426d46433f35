"""Regression cases: made of a label, kept in versions, found again as REG-<number>.

Each change is a version that holds the whole record. Changes say which version their author saw: an older one is
refused. All functions need an open tenant scope.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.cases.judge import CaseCheck, judge_case
from quality.cases.sample import Call, Judgement
from quality.improve import case_store, keyset, proposals
from quality.improve.case_draft import Draft, draft_from, read_correction
from quality.improve.case_import import ImportReport, LineFault, import_cases
from quality.improve.case_record import record_of
from quality.improve.case_store import (
    AlreadyArchived,
    CaseConflict,
    NoSuchCase,
    NotArchived,
    StaleCase,
    doubts,
    refuse,
)
from quality.ingest.jsontext import dump
from quality.models import (
    ArtifactKind,
    Case,
    CaseStatus,
    CaseVersion,
    Feedback,
    PayloadField,
    Proposal,
    ToolCall,
)
from quality.stored import json_sent, on_stored, prose_sent
from tenants.masking import reading
from tenants.models import ApiToken, User

__all__ = [
    "AlreadyArchived",
    "CaseConflict",
    "CaseFilter",
    "CasePage",
    "Draft",
    "ImportReport",
    "LineFault",
    "NoSuchCase",
    "NotArchived",
    "StaleCase",
    "archive",
    "case_from_feedback",
    "doubts",
    "draft_from",
    "duplicates",
    "edit",
    "find",
    "get",
    "import_cases",
    "judge_recorded",
    "matching",
    "merge",
    "parse_ref",
    "record_of",
    "restore",
    "same_as",
    "versions",
]

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
MAX_DUPLICATES = 20
_PAYLOAD = [field.name for field in Case._meta.fields if isinstance(field, PayloadField)]


@dataclass(frozen=True, kw_only=True)
class CaseFilter:
    """What a list is narrowed to; empty fields narrow nothing. `query` is looked for in behaviour and tool name."""

    statuses: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    tool: str = ""
    tag: str = ""
    proposal_id: int | None = None
    query: str = ""


@dataclass(frozen=True, kw_only=True)
class CasePage:
    """Cases without payload, newest number first."""

    rows: list[Case]
    next: str | None


# --- finding ---------------------------------------------------------------------------------------------------------


def parse_ref(ref: str) -> int:
    """The number in `REG-12` or `12`; raises NoSuchCase for anything else."""
    number = ref.strip().upper().removeprefix("REG-")
    if not (number.isascii() and number.isdigit() and 0 < int(number[:12]) <= case_store.MAX_NUMBER):
        raise NoSuchCase(f"{ref!r} is no case. Cases are called REG-1, REG-2 and so on.")
    return int(number)


def get(number: int) -> Case:
    """The case with its people, call and proposal; raises NoSuchCase."""
    case = _with_links(Case.objects.filter(number=number)).first()
    if case is None:
        raise NoSuchCase(_("There is no case REG-%(number)s.") % {"number": number})
    return case


def _with_links(cases: QuerySet[Case]) -> QuerySet[Case]:
    bodies = [field.name for field in ToolCall._meta.fields if isinstance(field, PayloadField)]
    links = cases.select_related("call", "proposal", "created_by", "merged_into")
    return links.defer(*(f"call__{name}" for name in bodies), *(f"merged_into__{name}" for name in _PAYLOAD))


def find(wanted: CaseFilter, *, cursor: str | None = None, page_size: int = PAGE_SIZE) -> CasePage:
    """A page of cases in one query; raises BadCursor."""
    rows = matching(wanted).defer(*_PAYLOAD).order_by("-number")
    if cursor:
        (number,) = keyset.read(cursor, keyset.number)
        rows = rows.filter(number__lt=number)
    found = list(rows[: page_size + 1])
    more = len(found) > page_size
    return CasePage(rows=found[:page_size], next=keyset.write(found[page_size - 1].number) if more else None)


def matching(wanted: CaseFilter) -> QuerySet[Case]:
    """All cases of a filter, in no order."""
    columns: dict[str, Any] = {
        "status__in": wanted.statuses,
        "label__in": wanted.labels,
        "tool_name": wanted.tool,
        "tags__contains": [wanted.tag] if wanted.tag else None,
        "proposal_id": wanted.proposal_id,
    }
    rows = Case.objects.filter(**{column: value for column, value in columns.items() if value})
    if wanted.query:
        rows = rows.filter(Q(behavior__icontains=wanted.query) | Q(tool_name__icontains=wanted.query))
    return rows


def versions(case: Case) -> list[CaseVersion]:
    """All versions, newest first, with `by` loaded."""
    return list(CaseVersion.objects.filter(case=case).select_related("by").order_by("-number"))


def duplicates(case: Case) -> list[Case]:
    """Other cases of the same tool, arguments and messages that were not merged yet, oldest first, without payload."""
    same = Case.objects.filter(same_sha256=bytes(case.same_sha256), merged_into=None).exclude(pk=case.pk)
    return list(same.defer(*_PAYLOAD).order_by("number")[:MAX_DUPLICATES])


def same_as(draft: Draft) -> list[Case]:
    """The cases that a draft would repeat."""
    if reading.current() is not None:
        with on_stored():
            draft = _draft_as_kept(Feedback.objects.get(pk=draft.feedback_id))
    same = Case.objects.filter(same_sha256=case_store.same_sha256(_unsaved(draft)), merged_into=None)
    return list(same.defer(*_PAYLOAD).order_by("number")[:MAX_DUPLICATES])


# --- making and changing ---------------------------------------------------------------------------------------------

_JSON_SENT = ("expectation", "stubs")


def _on_stored[**P](learn: Callable[..., object]) -> Callable[[Callable[P, Case]], Callable[P, Case]]:
    """A use case on cases as they are kept, for callers who see marks: `learn` reads what they were shown."""

    def decorate(use_case: Callable[P, Case]) -> Callable[P, Case]:
        @wraps(use_case)
        def run(*args: P.args, **sent: P.kwargs) -> Case:
            if reading.current() is None:
                return use_case(*args, **sent)
            learn(*args, **sent)
            told: Any = {name: _sent(name, value) for name, value in sent.items()}
            try:
                with on_stored():
                    number = use_case(*args, **told).number
            except CaseConflict as conflict:
                conflict.case = get(conflict.case.number)
                raise
            except proposals.ProposalConflict as conflict:
                conflict.proposal = proposals.get(conflict.proposal.pk)
                raise
            return get(number)

        return run

    return decorate


def _sent(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return json_sent(name, value) if name in _JSON_SENT else prose_sent(value)


def _learn_case(number: int, *_args: Any, **_sent: Any) -> None:
    """Of a case, and of the call that it was made of."""
    case = Case.objects.select_related("call").filter(number=number).first()
    if case is not None:
        versions(case)


def _learn_draft(feedback: Feedback, *, proposal: Proposal | None = None, **_sent: Any) -> None:
    draft_from(feedback, proposal=proposal)


@transaction.atomic
@_on_stored(_learn_draft)
def case_from_feedback(
    feedback: Feedback,
    *,
    by: User,
    proposal: Proposal | None = None,
    expectation: str | None = None,
    behavior: str = "",
    tags: Iterable[str] = (),
    seen_version: int | None = None,
    token: ApiToken | None = None,
) -> Case:
    """Save a case of a label. What is not given is as the draft proposes it. A proposal is closed by it as applied,
    with REG-<number> for its reference; `seen_version` is that of the proposal. The same case, sent twice by the same
    person, is made once.

    Raises ValidationError and, with a proposal, ProposalConflict. Whether the case does what it is for is for
    `judge_recorded` to say: it warns and refuses nothing.
    """
    if proposal is not None:
        _check_belongs(feedback, proposal)
    draft = _draft_as_kept(feedback, proposal)
    wanted = draft.expectation if expectation is None else expectation
    if wanted is None:
        refuse(
            "expectation",
            "required",
            _("This label proposes nothing to expect. Write down what would have been right."),
        )
    case = _unsaved(draft)
    case.behavior = case_store.checked_behavior(behavior or draft.behavior)
    case.expectation = case_store.checked_expectation(wanted)
    case.tags = case_store.checked_tags(tags)
    case.proposal = proposal
    case.created_by = by
    case_store.lock_numbers()
    if made := _made_before(case):
        case = made
    else:
        case.number = case_store.next_number()
        case.created_at = case.updated_at = timezone.now()
        case_store.add(case, note="", by=by, token=token, action="created")
    if proposal is not None and proposals.get(proposal.pk).resolution_ref != case.ref:
        proposals.apply(
            proposal.pk,
            kind=ArtifactKind.REGRESSION_CASE,
            ref=case.ref,
            by=by,
            seen_version=seen_version,
            token=token,
        )
    return case


def _draft_as_kept(feedback: Feedback, proposal: Proposal | None = None) -> Draft:
    """Its caller may have read the label for somebody who sees marks."""
    return draft_from(Feedback.objects.select_related("reviewer").get(pk=feedback.pk), proposal=proposal)


def _made_before(case: Case) -> Case | None:
    """The same case of the same label by the same person, as it was made and not changed since."""
    content = {name: getattr(case, name) for name in ("behavior", "expectation", "tags", "proposal_id")}
    by_same = Case.objects.filter(feedback_id=case.feedback_id, created_by=case.created_by, version=1)
    return by_same.filter(**content).order_by("number").first()


def _check_belongs(feedback: Feedback, proposal: Proposal) -> None:
    here = (feedback.label, feedback.tool_name, feedback.style_id)
    if here != (proposal.label, proposal.tool_name, proposal.style_id) or proposal.fault not in feedback.faults:
        refuse("feedback", "not_of_proposal", _("This label does not belong to the proposal."))


def _unsaved(draft: Draft) -> Case:
    return Case(
        tool_name=draft.tool_name,
        label=draft.label,
        args=draft.args,
        messages=draft.messages,
        tools=draft.tools,
        now=draft.now,
        result=draft.result,
        is_error=draft.is_error,
        error=draft.error,
        cycle=draft.cycle,
        index=draft.index,
        behavior=draft.behavior,
        expectation=draft.expectation or "{}",
        stubs=draft.stubs,
        context=draft.context,
        call_id=draft.call_id,
        feedback_id=draft.feedback_id,
    )


@transaction.atomic
@_on_stored(_learn_case)
def edit(
    number: int,
    *,
    by: User,
    seen_version: int,
    behavior: str | None = None,
    expectation: str | None = None,
    stubs: str | None = None,
    tags: Iterable[str] | None = None,
    note: str = "",
    token: ApiToken | None = None,
) -> Case:
    """Change what is given (None: stays), as a new version; the same content again is none. `expectation` and `stubs`
    are JSON text. Raises NoSuchCase, StaleCase and ValidationError."""
    case = case_store.locked(number)
    wanted: dict[str, Any] = {}
    if behavior is not None:
        wanted["behavior"] = case_store.checked_behavior(behavior)
    if expectation is not None:
        wanted["expectation"] = case_store.checked_expectation(expectation)
    if stubs is not None:
        wanted["stubs"] = case_store.checked_stubs(stubs)
    if tags is not None:
        wanted["tags"] = case_store.checked_tags(tags)
    changed = {name: value for name, value in wanted.items() if getattr(case, name) != value}
    if "expectation" in changed and _means_the_same(case.expectation, changed["expectation"]):
        del changed["expectation"]  # a form spells it in its own way
    if not changed:
        return get(number)
    if case.version != seen_version:
        raise StaleCase(get(number))
    case_store.change(case, note=case_store.checked_note(note), by=by, token=token, action="edited", **changed)
    return get(number)


def _means_the_same(left: str, right: str) -> bool:
    return case_store.canonical_text(left) == case_store.canonical_text(right)


@transaction.atomic
@_on_stored(_learn_case)
def archive(
    number: int, *, by: User, note: str = "", seen_version: int | None = None, token: ApiToken | None = None
) -> Case:
    """Take a case out of use; raises NoSuchCase, AlreadyArchived and StaleCase."""
    case = case_store.locked(number)
    if case.status == CaseStatus.ARCHIVED:
        raise AlreadyArchived(get(number))
    _check_seen(case, seen_version)
    case_store.change(
        case, note=case_store.checked_note(note), by=by, token=token, action="archived", status=CaseStatus.ARCHIVED
    )
    return get(number)


@transaction.atomic
@_on_stored(_learn_case)
def restore(
    number: int, *, by: User, note: str = "", seen_version: int | None = None, token: ApiToken | None = None
) -> Case:
    """Take a case back into use, also one that was merged; raises NoSuchCase, NotArchived and StaleCase."""
    case = case_store.locked(number)
    if case.status == CaseStatus.ACTIVE:
        raise NotArchived(get(number))
    _check_seen(case, seen_version)
    case_store.change(
        case,
        note=case_store.checked_note(note),
        by=by,
        token=token,
        action="restored",
        status=CaseStatus.ACTIVE,
        merged_into=None,
        context=_context(case, mergedInto=None),
    )
    return get(number)


@transaction.atomic
@_on_stored(_learn_case)
def merge(number: int, other_number: int, *, by: User, note: str = "", token: ApiToken | None = None) -> Case:
    """Keep one of two duplicates: the other is archived and says where it went; with it stays where it came from. The
    kept one takes its tags over.

    Raises NoSuchCase, AlreadyArchived and ValidationError."""
    if number == other_number:
        refuse("other", "same", _("A case cannot be merged into itself."))
    rows = {found: case_store.locked(found) for found in sorted((number, other_number))}
    kept, other = rows[number], rows[other_number]
    if bytes(kept.same_sha256) != bytes(other.same_sha256):
        refuse(
            "other",
            "not_a_duplicate",
            _("%(other)s has another tool, other arguments or another context than %(ref)s.")
            % {"other": other.ref, "ref": kept.ref},
        )
    for case in (kept, other):
        if case.merged_into_id or (case is kept and case.status == CaseStatus.ARCHIVED):
            raise AlreadyArchived(get(case.number))
    note = case_store.checked_note(note)
    case_store.change(
        other,
        note=note or f"Merged into {kept.ref}.",
        by=by,
        token=token,
        action="merged",
        status=CaseStatus.ARCHIVED,
        merged_into=kept,
        context=_context(other, mergedInto=kept.ref),
    )
    tags = list(dict.fromkeys([*kept.tags, *other.tags]))[: case_store.MAX_TAGS]
    case_store.change(
        kept, note=note or f"{other.ref} was merged into it.", by=by, token=token, action="merged", tags=tags
    )
    return get(number)


def _context(case: Case, **changes: Any) -> str:
    """The case's context with these members; None takes one away."""
    context = {**json.loads(case.context), **changes}
    return dump({name: value for name, value in context.items() if name not in changes or value is not None})


def _check_seen(case: Case, seen_version: int | None) -> None:
    if seen_version is not None and seen_version != case.version:
        raise StaleCase(get(case.number))


# --- judging ---------------------------------------------------------------------------------------------------------


def judge_recorded(case: Case | Draft, *, expectation: str | None = None) -> CaseCheck:
    """Does the expectation (another one, if given) do what the case is for? The recorded call of a bad label must fail
    it, the corrected call must pass; both beside the other calls of the same reply, where these are still known.

    Who sees marks is told the verdicts on what is kept, and reasons only where the marks lead to the same verdict."""
    shown = _judged(case, expectation)
    if reading.current() is None:
        return shown
    try:
        expectation = expectation and json_sent("expectation", expectation)
    except ValidationError:
        return shown  # who saves it is told of the mark
    with on_stored():
        kept = _judged(_as_kept(case), expectation)
    corrected = kept.corrected and _told(kept.corrected, shown.corrected)
    return CaseCheck(recorded=_told(kept.recorded, shown.recorded), corrected=corrected, warnings=kept.warnings)


def _told(kept: Judgement, shown: Judgement | None) -> Judgement:
    return shown if shown and shown.verdict == kept.verdict else Judgement(verdict=kept.verdict)


def _as_kept(case: Case | Draft) -> Case | Draft:
    if isinstance(case, Draft):
        return _draft_as_kept(Feedback.objects.get(pk=case.feedback_id))
    return get(case.number)


def _judged(case: Case | Draft, expectation: str | None) -> CaseCheck:
    beside = case.beside if isinstance(case, Draft) else _beside(case)
    return judge_case(
        case.expectation if expectation is None else expectation,
        label=case.label,
        call=None if case.index is None else Call(case.tool_name, case.args),
        correction=case.correction if isinstance(case, Draft) else _correction(case),
        tools=case.tools,
        now=case.now,
        beside=beside,
        index=min(case.index or 0, len(beside)),
    )


def _beside(case: Case) -> tuple[Call, ...]:
    if case.call is None:
        return ()
    others = ToolCall.objects.filter(turn_id=case.call.turn_id, cycle=case.call.cycle).exclude(pk=case.call.pk)
    return tuple(Call(name, args) for name, args in others.order_by("index").values_list("tool_name", "args"))


def _correction(case: Case) -> Mapping[str, Any] | None:
    """What the reviewer of the label says that the case was made of, if he still says it."""
    feedback = Feedback.objects.filter(pk=case.feedback_id, label=case.label).first() if case.feedback_id else None
    return read_correction(feedback) if feedback else None
