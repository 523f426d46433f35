"""What is said of a replay that has ended: to programs as JSON, to people as a mail. References and links, no evidence.

Needs an open tenant scope.
"""

import datetime as dt
import json
import unicodedata
from typing import Any

from django.conf import settings
from django.db.models import Count, Q
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from quality.cases.gate import Exit
from quality.cases.statistics import Change
from quality.models import Replay, ReplayCase, ReplaySchedule, ReplayState
from tenants.models import Tenant

EVENT = "replay.finished"
TEST_EVENT = "webhook.test"
MAX_CASES = 50  # named in one message
MAX_SUBJECT_CHARS = 150


def webhook_body(replay: Replay, tenant: Tenant) -> str:
    """`failing` are the cases that are newly failing, or that the gate is red for; the first 50 of `numFailing`."""
    failing = failing_cases(replay)
    gate = (replay.result or {}).get("gate") or {}
    return _json(
        event=EVENT,
        tenant=tenant.slug,
        replay={
            "id": replay.pk,
            "name": replay.name,
            "url": replay_url(replay, tenant),
            "state": replay.state,
            "verdict": verdict_of(replay),
            "exitCode": replay.exit_code,
            "gate": {"failed": gate.get("failed", []), "missing": gate.get("missing", [])},
            "failure": replay.failure,
            "startedAt": _moment(replay.started_at),
            "finishedAt": _moment(replay.finished_at),
            "counts": _counts(replay),
            "requests": replay.requests,
            "promptTokens": replay.prompt_tokens,
            "completionTokens": replay.completion_tokens,
            "cost": replay.cost,
        },
        schedule=_schedule(replay.schedule) | {"slot": _moment(replay.slot)} if replay.schedule else None,
        failing=[
            {"ref": row.ref, "confirmed": row.is_confirmed, "url": case_url(row, replay, tenant)}
            for row in failing[:MAX_CASES]
        ],
        numFailing=len(failing),
    )


def test_body(schedule: ReplaySchedule, tenant: Tenant, moment: dt.datetime) -> str:
    return _json(event=TEST_EVENT, tenant=tenant.slug, schedule=_schedule(schedule), sentAt=_moment(moment))


def mail(replay: Replay, tenant: Tenant) -> str:
    """A mail's subject, an empty line, and its text, in the active language."""
    failing = failing_cases(replay)
    name = one_line(replay.schedule.name if replay.schedule else replay.name)
    verdict = _(verdict_of(replay))
    subject = one_line(f"[Quality Lab] {name}: {verdict}")[:MAX_SUBJECT_CHARS]
    parts = [f"{verdict}\n{replay_url(replay, tenant)}", f"{_('Schedule: %(name)s') % {'name': name}}\n{_told(replay)}"]
    if failing:
        lines = [
            f"{row.ref}{f' ({_("confirmed")})' if row.is_confirmed else ''}: {case_url(row, replay, tenant)}"
            for row in failing[:MAX_CASES]
        ]
        lines += [_("and %(count)s more") % {"count": len(failing) - MAX_CASES}] if len(failing) > MAX_CASES else []
        parts.append("\n".join([_("Failing cases:"), *lines]))
    why = _("You get this as a member of %(tenant)s; an admin can change it at the schedule.")
    parts.append(why % {"tenant": one_line(tenant.name)})
    return "\n\n".join([subject, *parts]) + "\n"


def _told(replay: Replay) -> str:
    counts = _counts(replay)
    cases = _(
        "Cases: %(cases)s, of them %(passed)s passed, %(failed)s failed, %(undecided)s undecided, %(flaky)s flaky"
    )
    samples = _("Samples: %(samples)s, of them %(errors)s with no verdict")
    cost = _("Cost: %(cost)s") % {"cost": f"{replay.cost:.4g}"}
    return "\n".join([cases % counts, samples % counts, cost])


def failing_cases(replay: Replay) -> list[ReplayCase]:
    """Those that are newly failing, and those that the gate is red for: confirmed ones first."""
    red = ((replay.result or {}).get("gate") or {}).get("red", [])
    numbers = [int(ref.removeprefix("REG-")) for ref in red]
    rows = ReplayCase.objects.filter(Q(number__in=numbers) | Q(change=Change.NEWLY_FAILING), replay=replay)
    return list(rows.filter(is_quarantined=False).order_by("-is_confirmed", "number"))


def verdict_of(replay: Replay) -> str:
    """One sentence, in English: programs read it, too."""
    if replay.state == ReplayState.FAILED:
        return gettext_noop("It did not run to its end.")
    if verdict := (replay.result or {}).get("verdict"):
        return str(verdict)
    return gettext_noop("Passed.") if replay.exit_code == Exit.PASSED else gettext_noop("Not passed.")


def one_line(text: str) -> str:
    """Text that others wrote, for a header or a line: no line break of any kind, nothing that is not seen."""
    shown = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    return " ".join(shown.split())


def replay_url(replay: Replay, tenant: Tenant) -> str:
    return settings.PUBLIC_URL + reverse("replay-detail", args=[tenant.slug, replay.pk])


def case_url(row: ReplayCase, replay: Replay, tenant: Tenant) -> str:
    return settings.PUBLIC_URL + reverse("replay-case", args=[tenant.slug, replay.pk, row.number])


def _schedule(schedule: ReplaySchedule) -> dict[str, Any]:
    return {"id": schedule.pk, "name": schedule.name}


def _counts(replay: Replay) -> dict[str, int]:
    found = ReplayCase.objects.filter(replay=replay).aggregate(
        passed=Count("pk", filter=Q(standing="passed")),
        failed=Count("pk", filter=Q(standing="failed")),
        undecided=Count("pk", filter=Q(standing="undecided")),
        flaky=Count("pk", filter=Q(is_flaky=True)),
        newlyFailing=Count("pk", filter=Q(change=Change.NEWLY_FAILING)),
        confirmed=Count("pk", filter=Q(is_confirmed=True)),
    )
    return {"cases": replay.num_cases, "samples": replay.num_finished, "errors": replay.num_errors} | found


def _moment(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def _json(**members: Any) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
