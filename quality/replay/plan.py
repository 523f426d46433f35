"""A replay is planned: cases are chosen, what is asked is frozen, a row says that it is to be run.

All functions need an open tenant scope.
"""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce, Length
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages, tasks
from quality.cases.expectation import Mode
from quality.cases.record import Case as CaseRecord
from quality.cases.record import read_stored
from quality.cases.replay import DEFAULT_SAMPLES
from quality.cases.results import MUST, QUARANTINE, tags_of
from quality.improve import cases
from quality.improve.cases import NoSuchCase
from quality.improve.filters import CaseForm
from quality.models import (
    LIVE_REPLAYS,
    Case,
    CaseStatus,
    CaseVersion,
    Replay,
    ReplayCase,
    ReplaySchedule,
    ReplaySide,
    ReplayState,
)
from quality.replay import sides
from quality.replay.estimate import AskedCase, Estimate, SideEstimate, estimated
from quality.replay.wanted import Budget, RunSettings, SideSpec, Wanted
from tenants import audit
from tenants.masking import reading
from tenants.models import ApiToken, ModelEndpoint, User

__all__ = [
    "MAX_CASES",
    "MAX_LIVE",
    "MAX_SAMPLES",
    "Budget",
    "Estimate",
    "RunSettings",
    "SideEstimate",
    "SideSpec",
    "Wanted",
    "chosen_cases",
    "estimate",
    "start",
]

MAX_CASES: Final = 5_000
MAX_SAMPLES: Final = 100_000  # of all cases and sides together
MAX_LIVE: Final = 5  # of one tenant at once
ROWS_AT_ONCE: Final = 500
MAX_MISSING: Final = 10  # cases that a refusal names
_PLACE = ("status", "cursor", "page_size")  # of a list of cases: a replay chooses without them


def chosen_cases(wanted: Wanted) -> list[Case]:
    """The cases that are asked for, by number, without evidence but for the expectation. Raises ValidationError."""
    rows = _named(wanted) if wanted.cases else _found(wanted)
    columns = ("number", "version", "status", "tool_name", "tags", "expectation")
    found = list(rows.only(*columns).order_by("number")[: MAX_CASES + 1])
    if not found:
        _refuse("cases", "no_cases", _("No active case is chosen. Widen the filter, or make a case of a label."))
    if len(found) > MAX_CASES:
        _refuse(
            "cases",
            "too_many_cases",
            _("More than %(limit)s cases. Narrow the filter.") % {"limit": languages.number(MAX_CASES)},
        )
    return found


def estimate(wanted: Wanted) -> Estimate:
    """What it will take, before it begins. Raises ValidationError as `start` does, but for what only a start needs."""
    wanted = _checked(wanted)
    frozen = sides.frozen(wanted.sides)
    chosen = chosen_cases(wanted)
    return _estimate(chosen, frozen, wanted.settings)


@transaction.atomic
def start(
    wanted: Wanted,
    *,
    actor: User | None,
    token: ApiToken | None = None,
    schedule: ReplaySchedule | None = None,
    slot: dt.datetime | None = None,
) -> Replay:
    """Freeze what is asked and queue it. Raises ValidationError, whose names are those of the JSON (`sides.0.tools`),
    and IntegrityError where this slot of the schedule has its replay already."""
    wanted = _checked(wanted)
    if Replay.objects.filter(state__in=LIVE_REPLAYS).count() >= MAX_LIVE:
        _refuse(
            "__all__",
            "too_many_replays",
            _("%(limit)s replays are under way. Wait for one, or cancel it.") % {"limit": MAX_LIVE},
        )
    frozen = sides.frozen(wanted.sides)
    _check_settings(wanted, frozen)
    chosen = chosen_cases(wanted)
    planned = [_planned(row, wanted.settings) for row in _versions(chosen)]
    num_expected = sum(each.num_samples for each in planned) * len(frozen)
    if num_expected > MAX_SAMPLES:
        message = _("%(count)s samples are more than %(limit)s. Take fewer samples, or fewer cases.") % {
            "count": languages.number(num_expected),
            "limit": languages.number(MAX_SAMPLES),
        }
        _refuse("settings.samples", "too_many_samples", message)
    replay = Replay.objects.create(
        name=wanted.name,
        query=wanted.query,
        settings=wanted.settings.to_json(),
        estimate=_estimate(chosen, frozen, wanted.settings).as_dict(),
        schedule=schedule,
        slot=slot,
        baseline_replay=_baseline(wanted),
        num_cases=len(planned),
        num_expected=num_expected,
        lease_until=timezone.now() + dt.timedelta(seconds=settings.REPLAY_LEASE_S),
        created_by=actor,
        token_id=token.pk if token else None,
    )
    for side in frozen:
        side.replay = replay
    for each in planned:
        each.replay = replay
    ReplaySide.objects.bulk_create(frozen)
    ReplayCase.objects.bulk_create(planned, batch_size=ROWS_AT_ONCE)
    audit.record(
        "replay.started",
        object_type="replay",
        object_id=replay.pk,
        actor=actor,
        token=token,
        detail={"name": replay.name, "cases": replay.num_cases, "samples": replay.num_expected}
        | {side.name: side.model_label for side in frozen}
        | ({"schedule": schedule.name} if schedule else {}),
    )
    tenant_id, replay_id = replay.tenant_id, replay.pk
    transaction.on_commit(lambda: tasks.publish_aside(tasks.run_replay, tenant_id, replay_id))
    return replay


# Cases.


def _named(wanted: Wanted) -> QuerySet[Case]:
    try:
        numbers = {cases.parse_ref(str(ref)) for ref in wanted.cases}
    except NoSuchCase as error:
        _refuse("cases", "no_such_case", str(error))
    rows = Case.objects.filter(number__in=numbers)
    if missing := sorted(numbers - set(rows.values_list("number", flat=True))):
        told = {
            "names": ", ".join(f"REG-{number}" for number in missing[:MAX_MISSING]),
            "count": len(missing) - MAX_MISSING,
        }
        if len(missing) <= MAX_MISSING:
            _refuse("cases", "no_such_case", _("There is no case %(names)s.") % told)
        _refuse("cases", "no_such_case", _("There is no case %(names)s and %(count)s more.") % told)
    return rows


def _found(wanted: Wanted) -> QuerySet[Case]:
    query = QueryDict(wanted.query, mutable=True)
    for name in _PLACE:
        query.pop(name, None)
    form = CaseForm(query)
    if unknown := form.unknown():
        _refuse("query", "unknown_parameter", _("There is no filter %(names)s.") % {"names": ", ".join(unknown)})
    if faults := form.faults():
        _refuse("query", faults[0]["code"], "; ".join(f"{each['path']}: {each['message']}" for each in faults))
    return cases.matching(form.wanted).filter(status=CaseStatus.ACTIVE)


@dataclass(frozen=True, slots=True)
class _Version:
    """A case with its record as it is now."""

    case: Case
    record: CaseRecord


def _versions(chosen: list[Case]) -> Iterator[_Version]:
    by_pk = {case.pk: case for case in chosen}
    rows = CaseVersion.objects.filter(case__in=chosen, number=F("case__version")).order_by("case__number")
    for case_id, data in _as_kept(rows):
        case = by_pk[case_id]
        try:
            yield _Version(case, read_stored(data, case.number))
        except ValueError as error:
            _refuse(
                "cases",
                "unreadable_case",
                _("%(ref)s cannot be replayed: %(why)s. Mend it, or leave it out.") % {"ref": case.ref, "why": error},
            )


def _as_kept(rows: QuerySet[CaseVersion]) -> Iterator[tuple[int, str]]:
    """Records as they are kept, whoever asks: they are planned with, and not shown."""
    found = rows.values_list("case_id", "data").iterator(chunk_size=ROWS_AT_ONCE)
    while True:
        with reading.as_stored():  # not around the `yield`, which would leave it open for who asks
            row = next(found, None)
        if row is None:
            return
        yield row


def _planned(row: _Version, wanted: RunSettings) -> ReplayCase:
    record = row.record
    tags = tags_of(record)
    return ReplayCase(
        case=row.case,
        number=row.case.number,
        version=record.version,
        tool_name=record.tool or "",
        num_samples=wanted.samples or record.expectation.verdict.k or DEFAULT_SAMPLES,
        is_quarantined=QUARANTINE in tags,
        is_must=MUST in tags,
    )


# What it takes.


def _estimate(chosen: list[Case], frozen: list[ReplaySide], wanted: RunSettings) -> Estimate:
    rows = Case.objects.filter(pk__in=[case.pk for case in chosen])
    lengths = rows.values_list("pk", Length("messages"), Coalesce(Length("tools"), 0))
    by_pk = {pk: (messages, tools) for pk, messages, tools in lengths}
    asked = [_asked(case, *by_pk[case.pk], wanted) for case in chosen]
    return estimated(asked, frozen, concurrency=wanted.concurrency)


def _asked(case: Case, messages: int, tools: int, wanted: RunSettings) -> AskedCase:
    """Looks at no more of the expectation than it needs, for forms ask with each key that is pressed."""
    expectation = json.loads(case.expectation)
    calls = expectation.get("calls") or {}
    cycles = 1 if calls.get("mode") == Mode.FIRST else len(calls.get("steps") or ()) + 1
    return AskedCase(
        case_id=case.pk,
        samples=wanted.samples or (expectation.get("verdict") or {}).get("k") or DEFAULT_SAMPLES,
        requests=min(cycles, wanted.max_cycles),
        messages=messages,
        tools=tools,
    )


# Settings.


def _checked(wanted: Wanted) -> Wanted:
    """The same, within its bounds: they are looked at when JSON is read."""
    return Wanted.from_json(wanted.to_json())


def _check_settings(wanted: Wanted, frozen: list[ReplaySide]) -> None:
    chosen = wanted.settings
    asked: list[ModelEndpoint | ReplaySide] = [*frozen]
    if chosen.judge_label:
        asked.append(sides.endpoint_of(chosen.judge_label, "settings.judgeLabel"))
    for name, budget in (("budget", chosen.budget), ("caseBudget", chosen.case_budget)):
        if budget.cost is not None and any(sides.price_of(each) is None for each in asked):
            message = _("A budget of money needs the prices of the models. Set them under Models.")
            _refuse(f"settings.{name}.cost", "no_price", message)


def _baseline(wanted: Wanted) -> Replay | None:
    if wanted.baseline_replay_id is None:
        return None
    if len(wanted.sides) == 2:
        message = _("Two sides are compared with each other. Take one side, or leave the earlier replay out.")
        _refuse("baselineReplayId", "two_baselines", message)
    earlier = Replay.objects.filter(pk=wanted.baseline_replay_id).first()
    if earlier is None or earlier.state != ReplayState.DONE:
        told = _("It is not done: replay %(number)s. Choose one that is done.")
        if earlier is None:
            told = _("There is no replay %(number)s. Choose one that is done.")
        _refuse("baselineReplayId", "no_baseline", told % {"number": wanted.baseline_replay_id})
    return earlier


def _refuse(path: str, code: str, message: str) -> NoReturn:
    raise ValidationError({path: ValidationError(message, code=code)})
