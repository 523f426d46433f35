"""Makes the demo tenants: people, roles, turns, labels, what became of them. The one module of the demo that writes."""

import contextlib
import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db import connection, transaction
from django.utils import timezone

from quality.demo import generator, labels, real, team
from quality.demo.agents import contracts
from quality.demo.generator import CHANGED_DAYS_AGO
from quality.demo.guidelines import GUIDELINES
from quality.demo.records import turn_record
from quality.demo.scene import Scene, Verdict
from quality.improve import groups, guidelines, proposals
from quality.improve.cases import case_from_feedback
from quality.improve.groups import GroupFilter
from quality.ingest.items import Parsed
from quality.ingest.jsontext import dump
from quality.ingest.store import BatchReport, store
from quality.models import ArtifactKind, Import, ImportState, Label, ToolCall, Turn
from quality.review.items import Item
from quality.review.labelling import record_label
from tenants import access, booking, exchange, masks, styles
from tenants.envelope import NoKeys
from tenants.models import ExchangeRate, MaskRule, Membership, Role, Tenant, User
from tenants.scope import tenant_scope

LOCK = 7_301_160  # two first starts at once make one demo
NONCES = uuid.UUID("0b8f2f2e-4c1c-5d53-9a53-3f0f2ad1a7a4")


class NotADemo(Exception):
    """A tenant of somebody's own has a demo's slug; nothing was touched."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A demo tenant to be. `people` are e-mail, name, role; `reviewers` have labelled; `size` is in conversations."""

    slug: str
    name: str
    people: tuple[tuple[str, str, Role], ...]
    reviewers: tuple[str, str]
    seed: int
    size: int
    with_real: bool = False


ADMIN = ("demo@example.com", "Demo Admin")
FIRST = ("operator-one@example.com", "Operator One")
SECOND = ("operator-two@example.com", "Operator Two")
VIEWER = ("viewer@example.com", "Demo Viewer")

RATES = (("EUR", "USD", "1.08"), ("USD", "EUR", "0.92"), ("EUR", "USDT", "1.07"))

PLANS = (
    Plan(
        slug="demo",
        name="Demo Desk",
        people=((*ADMIN, Role.ADMIN), (*FIRST, Role.OPERATOR), (*SECOND, Role.OPERATOR), (*VIEWER, Role.VIEWER)),
        reviewers=(FIRST[0], SECOND[0]),
        seed=20_261,
        size=190,
        with_real=True,
    ),
    Plan(
        slug="lampwright",
        name="Lampwright & Daughters",
        people=((*FIRST, Role.ADMIN), (*ADMIN, Role.OPERATOR)),
        reviewers=(FIRST[0], ADMIN[0]),
        seed=7,
        size=14,
    ),
)


@dataclass(frozen=True, slots=True)
class Made:
    """What was made of a plan; zeros if it was there already."""

    plan: Plan
    turns: int = 0
    calls: int = 0
    labels: int = 0


def make(plan: Plan, *, reset: bool = False, now: dt.datetime | None = None) -> Made:
    """Make a demo tenant, all of it or nothing. One that exists stays as it is, unless its evidence is to be `reset`.

    Raises NotADemo if the slug is a real tenant's.
    """
    now = now or timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        tenant = access.tenant_by_slug(plan.slug)
        if tenant is None:
            tenant = Tenant.objects.create_tenant(slug=plan.slug, name=plan.name, is_demo=True)
            _admit(plan, tenant)
            _furnish(plan, tenant)
        elif not tenant.is_demo:
            raise NotADemo(
                f"The tenant {plan.slug} is not a demo; nothing was changed. Rename it to have the demo too."
            )
        elif not reset:
            return Made(plan)
        with tenant_scope(tenant):
            _empty(tenant)
            return _fill(plan, tenant, now)


def _admit(plan: Plan, tenant: Tenant) -> None:
    """The plan's people, who have no password: they sign in by link."""
    for email, name, role in plan.people:
        user = User.objects.filter(email=email).first() or User.objects.create_user(email, name=name)
        with tenant_scope(tenant):
            Membership.objects.create(user=user, role=role)


def _furnish(plan: Plan, tenant: Tenant) -> None:
    """What needs nothing but the service: tools (a booking link, the rates of an exchange desk), the styles of the
    demo's agents, in their versions, and a rule of masking: viewers read calls without who the contact is."""
    admin = User.objects.get(email=plan.people[0][0])
    with tenant_scope(tenant):
        for style_id, versions in contracts().items():
            style = None
            for _, contract in sorted(versions.items()):
                style = styles.save_style(
                    style_id=style_id,
                    name=style_id.replace("-", " ").capitalize(),
                    text=styles.StyleText(contract.system),
                    actor=admin,
                    pk=style.pk if style else None,
                )
        for give, get, rate in RATES:
            largest = Decimal(10_000)
            exchange.save_rate(
                ExchangeRate(give=give, get=get, rate=Decimal(rate), max_amount=largest, verify_from=largest / 10),
                actor=admin,
            )
        contact = MaskRule(name="contact", kind="key", expression="contact_id", seen_by=MaskRule.SeenBy.OPERATOR)
        masks.save_rule(contact, actor=admin)
        with contextlib.suppress(NoKeys):  # a link is sealed like any secret; it can be set later
            booking.set_url(f"https://book.example.com/{plan.slug}", actor=admin)


def _empty(tenant: Tenant) -> None:
    """Delete the evidence, all that hangs on it and what was made of it. Events of review have no other way to go than
    with their turn."""
    with connection.cursor() as cursor:
        for table in (
            "agent_tool_call_regression_cases",
            "agent_tool_call_improvement_proposals",
            "coach_runs",
            "review_queues",
            "saved_views",
            "agent_turns",
            "agent_toolsets",
            "imports",
        ):
            cursor.execute(f"DELETE FROM {table} WHERE tenant_id = %s", [tenant.pk])  # noqa: S608 - names of ours


def _fill(plan: Plan, tenant: Tenant, now: dt.datetime) -> Made:
    invented = list(generator.scenes(now, prefix=plan.slug, conversations=plan.size, seed=plan.seed))
    recorded = list(real.scenes(now)) if plan.with_real else []
    reports = [_store(invented, tenant)]
    if recorded:
        reports.append(_import(recorded, tenant, now))
    num_labels = _label(plan, [*invented, *recorded], now)
    _improve(_admin(plan), now)
    team.organise(_admin(plan), _reviewers(plan))
    return Made(
        plan,
        turns=sum(report.num_turns for report in reports),
        calls=sum(report.num_calls for report in reports),
        labels=num_labels,
    )


def _admin(plan: Plan) -> User:
    return User.objects.get(email=next(email for email, _, role in plan.people if role == Role.ADMIN))


def _reviewers(plan: Plan) -> list[User]:
    return [User.objects.get(email=email) for email in plan.reviewers]


def _improve(admin: User, now: dt.datetime) -> None:
    """What became of the labels: the change of an agent that mended a fault, a case, and a proposal to decide on."""
    found = groups.find(GroupFilter(), order="largest").groups
    changed = {style: now - dt.timedelta(days=days) for style, days in CHANGED_DAYS_AGO.items()}
    mended = next((one for one in found if one.first_at < changed.get(one.key.style_id, one.first_at)), None)
    if mended:
        at, style = changed[mended.key.style_id], mended.key.style_id
        tracked = proposals.track(mended.key, by=admin, at=at - dt.timedelta(days=1))
        note = "Version 2 says what the argument takes, and when to ask first."
        proposals.apply(tracked.pk, kind=ArtifactKind.TOOL_SCHEMA_PATCH, ref=f"{style}@2", note=note, by=admin, at=at)
    others = [one for one in found if one is not mended]
    guarded = next((one for one in others if one.key.label == Label.BAD_ARGS and one.num_items > 1), None)
    if guarded:
        tracked = proposals.track(guarded.key, by=admin)
        case_from_feedback(groups.feedback_of(tracked)[0], proposal=tracked, by=admin)
    if pending := next((one for one in others if one is not guarded), None):
        proposals.track(pending.key, by=admin)


def _store(scenes: Sequence[Scene], tenant: Tenant, import_id: int | None = None) -> BatchReport:
    batch = []
    for number, scene in enumerate(scenes):
        record = turn_record(scene)
        batch.append(Parsed(number, number + 1, len(record.messages or ""), (record,)))
    report = store(batch, tenant=tenant, import_id=import_id)
    if report.rejected:
        refused = report.rejected[0]
        raise ValueError(f"The demo's turn {scenes[refused.index].key} was refused: {refused.path}: {refused.message}")
    return report


def _import(scenes: Sequence[Scene], tenant: Tenant, now: dt.datetime) -> BatchReport:
    """The recorded exchanges, as the import that they are."""
    size = real.FILE.stat().st_size
    job = Import.objects.create(
        filename=real.FILE.name,
        format="openai_chat",
        state=ImportState.RUNNING,
        bytes_total=size,
        bytes_read=size,
        created_at=now,
        started_at=now,
    )
    report = _store(scenes, tenant, job.pk)
    job.state = ImportState.DONE
    job.num_accepted, job.num_turns, job.num_calls = report.accepted, report.num_turns, report.num_calls
    job.finished_at = timezone.now()
    job.save(update_fields=["state", "num_accepted", "num_turns", "num_calls", "finished_at"])
    return report


def _label(plan: Plan, scenes: Sequence[Scene], now: dt.datetime) -> int:
    reviewers = _reviewers(plan)
    turns = dict(Turn.objects.values_list("external_id", "pk"))
    calls = dict(ToolCall.objects.values_list("external_id", "pk"))
    num_labels = 0
    versions = (
        [] if guidelines.newest_number() else [(now - dt.timedelta(days=days), text) for days, text in GUIDELINES]
    )
    admin = _admin(plan)
    for given in labels.given(scenes, now, plan.seed):
        while versions and versions[0][0] <= given.at:
            at, text = versions.pop(0)
            guidelines.write(text=text, by=admin, at=at)
        verdict = given.verdict
        record_label(
            item=_item(given.scene, verdict, turns, calls),
            reviewer=reviewers[given.reviewer],
            label=verdict.label,
            note=verdict.note,
            correction=None if verdict.correction is None else dump(verdict.correction),
            at=given.at,
            nonce=uuid.uuid5(NONCES, f"{plan.slug}:{num_labels}"),  # given on the screen, so it has a pace
        )
        num_labels += 1
    return num_labels


def _item(scene: Scene, verdict: Verdict, turns: dict[str, int], calls: dict[str, int]) -> Item:
    turn_id = turns[scene.key]
    if verdict.index is None:
        return Item(turn_id=turn_id, cycle=verdict.cycle, call_id=None, started_at=scene.started_at)
    return Item(
        turn_id=turn_id,
        cycle=verdict.cycle,
        call_id=calls[f"{scene.key}:{verdict.cycle}:{verdict.index}"],
        started_at=scene.started_at,
        tool_name=scene.cycles[verdict.cycle].calls[verdict.index].tool,
    )
